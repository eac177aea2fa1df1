"""Medusa and EAGLE heads in training: what they compute, how they're judged, what they save."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from training.tiny_corpus import answers_of

from harness.engine.weights import load_transformer
from harness.errors import ConfigError
from harness.training.batches import Batch, BatchMaker
from harness.training.corpus import Answer
from harness.training.distil import Distiller
from harness.training.eagle import EagleSettings, EagleStudent
from harness.training.features import attach_features
from harness.training.head_student import HeadStudent
from harness.training.learner import TrainingSettings
from harness.training.medusa import MedusaSettings, MedusaStudent
from harness.training.unrolled import attend_unrolled, rotate_halves, shifted

DRAFT_VOCAB = np.array([2, *range(60, 160)], dtype=np.int32)
STEPS = 3
TRAINING = {
    "draft_vocab_size": 120,
    "epochs": 6.0,
    "learning_rate": 3e-3,
    "tokens_per_batch": 200,
    "max_prompt_tokens": 16,
    "checkpoint_every_s": 1e9,
    "num_threads": 1,
}
MEDUSA = MedusaSettings(**TRAINING, num_heads=STEPS)
EAGLE = EagleSettings(**TRAINING, num_steps=STEPS)


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from conftest import write_tiny_llama  # the helper behind `make_tiny_llama`, for a whole module

    return write_tiny_llama(tmp_path_factory.mktemp("target"), initializer_range=0.3)


@pytest.fixture(scope="module")
def answers(target_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    made = answers_of(target_dir, count=60)
    target = load_transformer(target_dir, dtype=torch.float32)
    attach_features(
        made,
        target,
        tmp_path_factory.mktemp("features"),
        target_id="it",
        max_prompt_tokens=16,
        tokens_per_batch=400,
    )
    return made


@pytest.fixture
def batch(answers: list[Answer]) -> Batch:
    maker = BatchMaker(DRAFT_VOCAB, vocab_size=300, max_prompt_tokens=16, tokens_per_batch=400)
    return maker.batch(answers[:6]).from_column(STEPS)


def student(target_dir: Path, settings: TrainingSettings) -> HeadStudent:
    torch.manual_seed(0)
    if isinstance(settings, MedusaSettings):
        return MedusaStudent(target_dir, settings, draft_vocab=DRAFT_VOCAB)
    assert isinstance(settings, EagleSettings)
    return EagleStudent(target_dir, settings, draft_vocab=DRAFT_VOCAB)


def test_unrolled_attention_is_that_of_each_draft_alone() -> None:
    """Brute force: the rows that one draft has when it drafts its newest token, in one plain attention."""
    generator = torch.Generator().manual_seed(0)
    length, heads, groups, size = 7, 2, 2, 4

    def random(count: int) -> Tensor:
        return torch.randn(1, count, length, size, generator=generator)

    context = [(random(heads), random(heads)) for _ in range(STEPS)]
    for steps in range(1, STEPS + 1):
        queries = random(heads * groups)
        found = attend_unrolled(queries, context[:steps])
        for row in range(steps - 1, length):
            # the target's rows up to row - steps + 1, then one row of each later step
            places = [(0, r) for r in range(row - steps + 2)]
            places += [(step, row - steps + 1 + step) for step in range(1, steps)]
            keys, values = (
                torch.stack([context[s][part][0, :, r] for s, r in places], 1).repeat_interleave(groups, 0)
                for part in (0, 1)
            )
            expected = torch.nn.functional.scaled_dot_product_attention(
                queries[0, :, row : row + 1], keys, values
            )
            torch.testing.assert_close(found[0, :, row], expected[:, 0])


def test_rows_shift_towards_the_end() -> None:
    x = torch.arange(6.0).view(3, 2)
    assert shifted(x, 0).tolist() == x.tolist()
    assert shifted(x, 2).tolist() == [[0, 0], [0, 0], [0, 1]]


def test_rotations_are_those_of_transformers() -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    heads, angles = torch.randn(1, 2, 5, 8), torch.randn(5, 4)
    rotations = torch.polar(torch.ones_like(angles), angles)
    twice = torch.cat((angles, angles), -1)[None]
    expected, _ = apply_rotary_pos_emb(heads, heads, twice.cos(), twice.sin())
    torch.testing.assert_close(rotate_halves(heads, rotations), expected)


def test_an_eagle_step_sees_what_a_draft_sees(target_dir: Path, batch: Batch) -> None:
    """Brute force: one draft after another, without a batch, without shared rows."""
    eagle = student(target_dir, EAGLE)
    assert isinstance(eagle, EagleStudent)
    assert batch.features is not None
    with torch.no_grad():
        outputs = eagle.drafted(batch)
        for position in (0, 3, len(batch.where[0]) - 1):
            row, column = (int(part[position]) for part in batch.where)
            embedded = torch.nn.functional.embedding(batch.tokens[row], eagle.embeddings)
            for step in range(1, STEPS + 1):
                features = batch.features[row, : column - step + 1].to(torch.bfloat16)
                while len(features) <= column:
                    pairs = torch.cat((embedded[1 : len(features) + 1], features), -1)[None]
                    with torch.autocast("cpu", torch.bfloat16):
                        made = eagle._step(pairs, [], eagle._rotation_rows(len(features)))
                    features = torch.cat((features, made[0, -1:].to(torch.bfloat16)))
                found, expected = outputs[step - 1][position].float(), features[-1].float()
                assert float((found - expected).norm()) < 0.03 * float(expected.norm())


def test_medusa_heads_start_as_the_targets_own(target_dir: Path, batch: Batch) -> None:
    heads = student(target_dir, MEDUSA)
    assert batch.features is not None
    rows, columns = batch.where
    with torch.no_grad():
        for step, hidden in enumerate(heads.drafted(batch), start=1):
            assert torch.equal(hidden, batch.features[rows, columns - step].to(torch.bfloat16))
        # what it says of the token after the last hidden state is the target's own head
        known = batch.features[rows, columns]
        likeliest = heads.logits(known).argmax(-1)
    seen = batch.top_columns[:, 0] >= 0
    assert (likeliest == batch.top_columns[:, 0])[seen].float().mean() > 0.9


def test_tokens_per_forward_follow_from_chains(target_dir: Path, batch: Batch) -> None:
    heads = student(target_dir, MEDUSA)
    scores = heads.evaluate([batch, batch])
    with torch.no_grad():
        agreed = [
            (heads.logits(hidden).argmax(-1) == batch.top_columns[:, 0]).tolist()
            for hidden in heads.drafted(batch)
        ]
    rows = batch.where[0].tolist()
    lengths = []
    for start in range(len(rows) - STEPS + 1):
        if rows[start] == rows[start + STEPS - 1]:
            stands = [agreed[step][start + step] for step in range(STEPS)]
            lengths.append(stands.index(False) if False in stands else STEPS)
    assert scores["tokens_per_forward"] == pytest.approx(1 + sum(lengths) / len(lengths))
    for step in range(STEPS):
        assert scores[f"agreement_{step + 1}"] == pytest.approx(sum(agreed[step]) / len(rows))


def mean_loss(distiller: Distiller[HeadStudent]) -> float:
    with torch.no_grad():
        batches = distiller._maker.epoch(distiller._train, seed=0)
        losses = [distiller.student.loss(batch, overlap_weight=0.0) for batch in batches]
    return float(torch.stack(losses).mean())


@pytest.mark.parametrize("settings", [MEDUSA, EAGLE])
def test_training_lowers_the_loss(
    settings: TrainingSettings, target_dir: Path, answers: list[Answer], tmp_path: Path
) -> None:
    kind: Any = MedusaStudent if isinstance(settings, MedusaSettings) else EagleStudent
    distiller: Distiller[HeadStudent] = Distiller(
        tmp_path / "run",
        make_student=lambda vocab: kind(target_dir, settings, draft_vocab=vocab),
        train=answers,
        held_out=answers[:20],
        settings=settings,
        eos_ids=frozenset({2}),
        vocab_size=300,
    )
    before = mean_loss(distiller)
    (scores,) = distiller.run().history
    assert mean_loss(distiller) < before - 0.2
    assert 1 <= scores["tokens_per_forward"] <= 1 + STEPS


@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_the_feature_distance_counts_by_its_weight(weight: float, target_dir: Path, batch: Batch) -> None:
    losses = {}
    for chosen in (0.0, weight):
        eagle = student(target_dir, replace(EAGLE, feature_weight=chosen))
        with torch.no_grad():
            losses[chosen] = float(eagle.loss(batch, overlap_weight=0.0))
    assert (losses[weight] > losses[0.0] + 0.1) == (weight > 0)


@pytest.mark.parametrize("settings", [MEDUSA, EAGLE])
def test_training_goes_on_from_a_trained_head(
    settings: TrainingSettings, target_dir: Path, tmp_path: Path
) -> None:
    trained = student(target_dir, settings)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.copy_(torch.randn_like(parameter).to(torch.bfloat16))
    trained.save(target_dir, tmp_path)
    fresh = student(target_dir, settings)
    fresh.start_from(tmp_path)
    torch.testing.assert_close(fresh.state_dict(), trained.state_dict())


def test_a_head_of_another_shape_is_no_start(target_dir: Path, tmp_path: Path) -> None:
    student(target_dir, MEDUSA).save(target_dir, tmp_path)
    more = student(target_dir, replace(MEDUSA, num_heads=STEPS + 1))
    with pytest.raises(ConfigError, match=rf"--start-from: .*'blocks.{STEPS}.layers.0.\w+' .* none there"):
        more.start_from(tmp_path)


EAGLE_SHAPES = {
    "fc.weight": (64, 128),
    "embed_tokens.weight": (300, 64),
    "layers.0.self_attn.q_proj.weight": (64, 64),
    "layers.0.self_attn.k_proj.weight": (32, 64),
    "layers.0.self_attn.v_proj.weight": (32, 64),
    "layers.0.self_attn.o_proj.weight": (64, 64),
    "layers.0.mlp.gate_proj.weight": (96, 64),
    "layers.0.mlp.up_proj.weight": (96, 64),
    "layers.0.mlp.down_proj.weight": (64, 96),
    "layers.0.post_attention_layernorm.weight": (64,),
}


def test_an_eagle_folder_has_the_public_names(target_dir: Path, tmp_path: Path) -> None:
    student(target_dir, EAGLE).save(target_dir, tmp_path / "eagle")
    tensors = load_file(tmp_path / "eagle/model.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == EAGLE_SHAPES
    config = json.loads((tmp_path / "eagle/config.json").read_text())
    assert (config["num_hidden_layers"], config["architectures"]) == (1, ["LlamaForCausalLM"])
    np.testing.assert_array_equal(np.load(tmp_path / "eagle/draft_vocab.npy"), DRAFT_VOCAB)


def test_a_medusa_folder_has_vllms_names(target_dir: Path, tmp_path: Path) -> None:
    student(target_dir, MEDUSA).save(target_dir, tmp_path / "medusa")
    tensors = load_file(tmp_path / "medusa/model.safetensors")
    expected = {f"blocks.{head}.layers.0.{part}" for head in range(STEPS) for part in ("weight", "bias")}
    assert set(tensors) == expected | {"lm_head.weight"}
    np.testing.assert_array_equal(np.load(tmp_path / "medusa/draft_vocab.npy"), DRAFT_VOCAB)
    config = json.loads((tmp_path / "medusa/config.json").read_text())
    assert (config["num_heads"], config["vocab_size"], config["original_lm_head"]) == (STEPS, 300, True)
    embeddings = load_file(target_dir / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(tensors["lm_head.weight"], embeddings)


def test_commands_train_and_save(target_dir: Path, answers: list[Answer], tmp_path: Path) -> None:
    from harness.__main__ import main
    from harness.training.corpus import write_shard

    write_shard(tmp_path, 0, answers)
    common = f"--target path:{target_dir} --corpus {tmp_path} --features {tmp_path / 'features'}"
    common += " --draft-vocab 40 --epochs 1 --held-out 5 --threads 1"
    for line in ("medusa --heads 2", "eagle --steps 2"):
        kind = line.split()[0]
        out = tmp_path / kind
        asset = tmp_path / f"assets/tiny-{kind}"
        command = ["train", *line.split(), *common.split(), "--out", str(out), "--asset", str(asset)]
        assert main(command) == 0
        assert json.loads((asset / "card.json").read_text())["kind"] == kind
        facts = json.loads((out / "facts.json").read_text())
        assert facts["held_out"]["tokens_per_forward"] >= 1
        assert (out / "model/config.json").is_file()
    # both train on the same hidden states
    assert len(list((tmp_path / "features").glob("*.f16"))) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("medusa --heads 0", "--heads: must be at least 1, got 0"),
        ("eagle --steps 0", "--steps: must be at least 1, got 0"),
        ("eagle --draft-vocab 301", "--draft-vocab: must be from 1 to 300, got 301"),
    ],
)
def test_bad_input_is_one_line(
    line: str, says: str, target_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.__main__ import main

    more = ["--target", f"path:{target_dir}", "--corpus", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main(["train", *line.split(), *more]) == 2
    assert says in capsys.readouterr().err
