"""Draft trees and EAGLE heads through the compiled kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.random_heads import save_eagle_head
from engine.random_models import all_logits, reference_model, save_checkpoint
from torch import Tensor

from harness.engine.compiled import build
from harness.engine.compiled.transformer import CompiledTransformer
from harness.engine.drafters.eagle import EagleDrafter, EagleHead
from harness.engine.drafters.tree_model import TreeDraftModel
from harness.engine.heads import load_eagle
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.tree_growth import DynamicTree, StaticTree, TreePlan
from harness.engine.tree_placement import NodeSlots, place_trees
from harness.engine.weights import load_transformer

KERNELS = build.load_kernels()
pytestmark = pytest.mark.skipif(isinstance(KERNELS, str), reason=f"no compiled kernels: {KERNELS}")
SHAPE = {"hidden_size": 128, "intermediate_size": 160, "head_dim": 32, "vocab_size": 84}
PARENTS = [0, 0, 1, 1, 2, 4]
TREE = StaticTree([0, 0, 0, 1, 1, 2, 4])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = reference_model("llama", **SHAPE)
    for parameter in model.parameters():
        parameter.data = 0.4 * parameter.data if parameter.ndim > 1 else parameter.data
    return save_checkpoint(model.bfloat16(), tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def eagle_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_eagle_head(folder, tmp_path_factory.mktemp("eagle"), seed=8)


def tree_logits(model: Transformer, prompt: list[int], tokens: list[int], parents: list[int]) -> Tensor:
    """The model's view after a tree's root and nodes, in one forward behind a prompt."""
    cache = model.new_cache(capacity=40)
    model.prefill(torch.tensor([prompt]), cache)
    return model.head(model.forward_rows([tokens], cache, place_trees(cache, [parents])))


def test_a_node_has_the_bits_of_its_path_alone(folder: Path) -> None:
    model = load_transformer(folder)
    assert isinstance(model, CompiledTransformer)
    prompt, tokens = [3, 1, 4, 1, 5], [8, 9, 2, 6, 5, 3, 5]
    found = tree_logits(model, prompt, tokens, PARENTS)
    for node in range(7):
        path, at = list[int](), node
        while at:
            path, at = [tokens[at], *path], PARENTS[at - 1]
        alone = all_logits(model, torch.tensor([[*prompt, tokens[0], *path]]))[0, -1]
        assert torch.equal(found[node], alone)


def test_trees_of_a_batch_keep_to_their_own_rows(folder: Path) -> None:
    model = load_transformer(folder)
    prompts, trees = [[3, 1], [2, 7, 1, 8, 2]], [[0, 0, 1], [0, 1, 0, 0, 2]]
    tokens = [[4, 9, 8, 7], [5, 6, 7, 8, 9, 10]]
    cache = model.new_cache(capacity=40, batch=2)
    model.feed(prompts, cache)
    together = model.head(model.forward_rows(tokens, cache, place_trees(cache, trees)))
    alone = [tree_logits(model, *parts) for parts in zip(prompts, tokens, trees, strict=True)]
    assert torch.equal(together, torch.cat(alone))


def heads(folder: Path, eagle_folder: Path) -> tuple[EagleHead, EagleHead]:
    """The head compiled, and in PyTorch's float32."""
    compiled, plain = load_transformer(folder), load_transformer(folder, dtype=torch.float32)
    return load_eagle(eagle_folder, compiled, folder), load_eagle(eagle_folder, plain, folder)


def test_an_eagle_head_runs_compiled_as_in_pytorch(folder: Path, eagle_folder: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    outputs = []
    for head in heads(folder, eagle_folder):
        generator.manual_seed(1)
        cache = head.model.new_cache(capacity=30, batch=2)
        tokens = torch.randint(0, 84, (2, 6), generator=generator)
        hidden = torch.randn(2, 6, 128, generator=generator)
        rows = [head.run(tokens, hidden, cache)]
        cache.lengths = [6, 3]
        slots, trees = NodeSlots(cache), [[-1, 0, 0, 1], [-1, 0, 1, 1]]
        for nodes in ([[1, 2], [1]], [[3], [2, 3]]):
            new = max(map(len, nodes))
            tokens = torch.randint(0, 84, (2, new), generator=generator)
            hidden = torch.randn(2, new, 128, generator=generator)
            found = head.run(tokens, hidden, cache, slots.place(trees, nodes))
            rows += [found[row, : len(own)] for row, own in enumerate(nodes)]
        outputs.append(torch.cat([part.reshape(-1, 128) for part in rows]))
    assert isinstance(heads(folder, eagle_folder)[0].model, CompiledTransformer)
    difference = (outputs[0] - outputs[1]).norm(dim=-1) / outputs[1].norm(dim=-1)
    assert float(difference.max()) < 0.03


@pytest.mark.parametrize("plan", [TREE, DynamicTree(7, depth=4, breadth=3)], ids=["static", "dynamic"])
@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_trees_give_the_baselines_tokens_in_bfloat16(
    method: str, plan: TreePlan, folder: Path, eagle_folder: Path
) -> None:
    model = load_transformer(folder)
    requests = [Request([n + 1 for n in range(length)], 30) for length in (1, 3, 9, 4, 2, 7, 5, 5)]

    def decode(drafter: TreeDraftModel | EagleDrafter | None) -> list[list[int]]:
        decoder = Decoder(model, cache=model.new_cache(capacity=60, batch=8), drafter=drafter, k=4)
        return [one.tokens for one in decoder.decode_batch(requests, sampling=SamplingParams())]

    if method == "eagle":
        head = load_eagle(eagle_folder, model, folder)
        drafter: TreeDraftModel | EagleDrafter = EagleDrafter(
            head, cache=head.model.new_cache(capacity=60, batch=8), plan=plan
        )
    else:
        drafter = TreeDraftModel(model, cache=model.new_cache(capacity=60, batch=8), plan=plan)
    assert decode(drafter) == decode(None)
