"""The draft model while it is trained: a few of the target's layers under its frozen embeddings."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.training.batches import Batch
from harness.training.learner import TrainingSettings
from harness.training.target_tensors import starting_tensors


@dataclass(frozen=True, slots=True)
class DistilSettings(TrainingSettings):
    """How a draft model is trained.

    Attributes:
        layer_indices: target layers it starts from; their number is its depth.
    """

    layer_indices: tuple[int, ...] = (0, 29)


class Student(nn.Module):
    """Llama layers and a final norm to train; embeddings and the head's rows stay the target's.

    Args:
        target_dir: checkpoint folder of the target.
        layer_indices: which of the target's layers the drafter starts from.
        draft_vocab: [size] ids the training head covers.
    """

    def __init__(
        self, target_dir: Path, *, layer_indices: tuple[int, ...], draft_vocab: NDArray[np.int32]
    ) -> None:
        """See the class."""
        super().__init__()
        from transformers import AutoModelForCausalLM, LlamaConfig, LlamaModel

        target: Any = AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32)
        values = json.loads((target_dir / "config.json").read_text(encoding="utf-8"))
        values.update(num_hidden_layers=len(layer_indices), vocab_size=1, dtype="float32")
        values.update(dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")))
        body: Any = LlamaModel(LlamaConfig(**values))
        for mine, theirs in enumerate(layer_indices):
            body.layers[mine].load_state_dict(target.model.layers[theirs].state_dict())
        body.norm.load_state_dict(target.model.norm.state_dict())
        # one dummy row: embeddings are looked up in the target's frozen table
        body.embed_tokens = None
        self.body: nn.Module = body
        embeddings = target.get_input_embeddings().weight.detach()
        self.register_buffer("embeddings", embeddings.to(torch.bfloat16), persistent=False)
        rows = target.get_output_embeddings().weight.detach()[torch.from_numpy(draft_vocab.astype(np.int64))]
        self.register_buffer("head", rows.to(torch.bfloat16), persistent=False)

    @property
    def num_layers(self) -> int:
        """Trained decoder layers."""
        return len(self.body.layers)  # type: ignore[arg-type]

    def start_from(self, folder: Path) -> None:
        """Take the layers of a checkpoint that `save_checkpoint` wrote, or of a shipped drafter.

        Raises:
            ConfigError: a tensor is missing there or has another shape.
        """
        own = {f"model.{name}": tensor for name, tensor in self.body.state_dict().items()}
        remedy = "Name a drafter of the same target, with as many layers as --layers says."
        found = starting_tensors(folder, own, remedy=remedy)
        self.body.load_state_dict({name.removeprefix("model."): tensor for name, tensor in found.items()})

    def logits(self, batch: Batch) -> Tensor:
        """Logits over the reduced vocabulary where an answer token is predicted, [positions, size]."""
        embedded = functional.embedding(batch.tokens, self.embeddings)  # type: ignore[arg-type]
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.body(inputs_embeds=embedded, use_cache=False).last_hidden_state
            return functional.linear(hidden[batch.where].to(torch.bfloat16), self.head)  # type: ignore[arg-type]

    def loss(self, batch: Batch, *, overlap_weight: float) -> Tensor:
        """See `distillation_loss`."""
        return distillation_loss(self.logits(batch), batch, overlap_weight=overlap_weight)

    def evaluate(self, batches: list[Batch]) -> dict[str, float]:
        """See `agreement`."""
        same, overlap = agreement(self, batches)
        return {"agreement": same, "overlap": overlap}

    def layer_tensors(self) -> dict[str, Tensor]:
        """The trained tensors under their Hugging Face names, bfloat16."""
        named = {f"model.{name}": value for name, value in self.body.state_dict().items()}
        return {name: value.to(torch.bfloat16).contiguous() for name, value in named.items()}


def distillation_loss(logits: Tensor, batch: Batch, *, overlap_weight: float) -> Tensor:
    """Cross-entropy with the target's probabilities, and how little the two distributions overlap.

    The second term is the rejection rate itself at temperature 1: 1 - sum min(p, q).

    Args:
        logits: [positions, size] of the student.
        batch: with the target's top probabilities.
        overlap_weight: of the second term, from 0 to 1.

    Returns:
        A scalar, averaged over positions.

    Source: Zhou et al. 2024, "DistillSpec", section 3, for the total-variation term.
    """
    known = batch.top_columns >= 0
    target = batch.top_probs * known
    logprobs = logits.float().log_softmax(-1).gather(1, batch.top_columns.clamp(min=0))
    cross_entropy = -(target * logprobs).sum(-1)
    rejected = 1 - torch.minimum(target, logprobs.exp() * known).sum(-1)
    return ((1 - overlap_weight) * cross_entropy + overlap_weight * rejected).mean()


@torch.no_grad()
def agreement(student: Student, batches: list[Batch]) -> tuple[float, float]:
    """Held-out quality of a student.

    Returns:
        Share of positions where its likeliest token is the target's (the acceptance of greedy drafts
        at temperature 0), and the mean overlap sum min(p, q) (the acceptance at temperature 1).
    """
    same, overlap, positions = 0.0, 0.0, 0
    for batch in batches:
        logits = student.logits(batch).float()
        known = batch.top_columns >= 0
        probs = logits.softmax(-1).gather(1, batch.top_columns.clamp(min=0)) * known
        same += float((logits.argmax(-1) == batch.top_columns[:, 0]).sum())
        overlap += float(torch.minimum(batch.top_probs * known, probs).sum())
        positions += len(logits)
    return same / positions, overlap / positions


def save_checkpoint(
    student: Student, target_dir: Path, folder: Path, *, draft_vocab: NDArray[np.int32]
) -> None:
    """Write the student as a plain Llama checkpoint that Transformers, vLLM and llama.cpp's converter read.

    Args:
        student: after training.
        target_dir: gives configuration, tokenizer and embeddings.
        folder: to write.
        draft_vocab: [size] int32 ids of the reduced head, stored beside the weights.
    """
    from safetensors.torch import load_file, save_file

    folder.mkdir(parents=True, exist_ok=True)
    for file in target_dir.iterdir():
        if file.suffix in (".json", ".jinja", ".txt") and file.name not in ("config.json", "manifest.json"):
            shutil.copyfile(file, folder / file.name)
    config = json.loads((target_dir / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] = student.num_layers
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shared = {
        name: tensor
        for file in sorted(target_dir.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
        if name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    save_file({**shared, **student.layer_tensors()}, folder / "model.safetensors", metadata={"format": "pt"})
    np.save(folder / "draft_vocab.npy", draft_vocab)
