"""EAGLE and Medusa heads from their folders into the native backend, and what it refuses."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from engine.random_models import greedy_continuation
from safetensors.torch import load_file, save_file
from tiny_runs import TinyRun

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend, NativeSession
from harness.engine.heads import load_eagle, load_medusa
from harness.engine.weights import load_transformer
from harness.errors import HarnessError, ModelSourceError, PairMismatchError, UnsupportedError
from harness.models.pair_check import check_head_pair
from harness.models.sources import resolve_model
from harness.records import Variant
from harness.training.eagle import EagleSettings, EagleStudent
from harness.training.medusa import MedusaSettings, MedusaStudent

PROMPT = (5, 60, 61, 62, 5, 60, 61)
DRAFT_VOCAB = np.array([2, *range(60, 160)], dtype=np.int32)
SETTINGS = DecodingSettings(0.0, 0, 1.0, frozenset(), 60, batch_size=2)
TREE = (("tree_parents", (0, 0, 1)), ("label", "tree3"))


@pytest.fixture
def heads(tiny: TinyRun) -> dict[str, Path]:
    """Untrained heads, as training saves them."""
    torch.manual_seed(0)
    medusa = MedusaStudent(tiny.target, MedusaSettings(num_heads=3), draft_vocab=DRAFT_VOCAB)
    eagle = EagleStudent(tiny.target, EagleSettings(), draft_vocab=DRAFT_VOCAB)
    folders = {"medusa": tiny.folder / "medusa", "eagle": tiny.folder / "eagle"}
    medusa.save(tiny.target, folders["medusa"])
    eagle.save(tiny.target, folders["eagle"])
    return folders


@pytest.fixture
def session(tiny: TinyRun) -> Iterator[NativeSession]:
    target = resolve_model(f"path:{tiny.target}")
    opened = NativeBackend.open(EngineSettings(target, "cpu", "float32", 1, "none", "none"))
    yield opened
    opened.close()


def variant(method: str, k: int = 3, *more: tuple[str, object], vocab: bool = True) -> Variant:
    options = (("draft_sampling", "sampled"), ("draft_vocab", vocab), *more)
    return Variant(method, k, f"path:{method}", options)


@pytest.mark.parametrize("method", ["eagle", "medusa"])
@pytest.mark.parametrize(
    "more",
    [(), TREE, (("tree_nodes", 5), ("tree_breadth", 2), ("label", "dynamic5"))],
    ids=["chain", "static", "dynamic"],
)
def test_heads_draft_and_the_output_is_the_targets(
    method: str,
    more: tuple[tuple[str, object], ...],
    session: NativeSession,
    heads: dict[str, Path],
    tiny: TinyRun,
) -> None:
    chosen = variant(method, 2, *more)
    applied, parts = session.prepare(chosen, resolve_model(f"path:{heads[method]}"), SETTINGS)
    assert applied["draft_vocab_size"] == len(DRAFT_VOCAB)
    assert [part.part for part in parts] == ["load_drafter"]
    assert applied.get("tree_nodes") == {0: None, 2: 3, 3: 5}[len(more)]
    requests = [SequenceRequest(PROMPT, 20, 1), SequenceRequest(PROMPT[:3], 12, 2)]
    target = load_transformer(tiny.target, dtype=torch.float32)
    for request, decoded in zip(requests, session.decode(chosen, requests, SETTINGS), strict=True):
        assert decoded.tokens == greedy_continuation(target, list(request.prompt), request.max_new_tokens)
        assert decoded.steps is not None
        assert max(decoded.steps.proposed) == 2


def test_both_vocabularies_of_a_head_can_be_prepared(session: NativeSession, heads: dict[str, Path]) -> None:
    sizes = []
    for vocab in (True, False):
        for method in ("eagle", "medusa"):
            drafter = resolve_model(f"path:{heads[method]}")
            sizes.append(
                session.prepare(variant(method, vocab=vocab), drafter, SETTINGS)[0]["draft_vocab_size"]
            )
    assert sizes == [101, 101, 300, 300]


@pytest.mark.parametrize("method", ["draft_model", "eagle", "medusa"])
def test_drafts_end_where_the_drafter_is_unsure(
    method: str, session: NativeSession, heads: dict[str, Path], tiny: TinyRun
) -> None:
    drafter = resolve_model(f"path:{heads.get(method, tiny.drafter)}")
    drafted = []
    for least in (0.0, 0.999):
        chosen = variant(method, 3, ("min_confidence", least), ("label", f"conf{least}"), vocab=False)
        session.prepare(chosen, drafter, SETTINGS)
        (decoded,) = session.decode(chosen, [SequenceRequest(PROMPT, 20, 1)], SETTINGS)
        assert decoded.tokens == greedy_continuation(
            load_transformer(tiny.target, dtype=torch.float32), list(PROMPT), 20
        )
        assert decoded.steps is not None
        drafted.append(sum(decoded.steps.proposed))
    # nobody is that sure with random weights
    assert drafted[0] > 0
    assert drafted[1] == 0


def test_an_adaptive_variant_measures_its_costs(
    session: NativeSession, heads: dict[str, Path], tiny: TinyRun
) -> None:
    chosen = variant("eagle", 3, ("adaptive", True), ("label", "adaptive"))
    applied, parts = session.prepare(chosen, resolve_model(f"path:{heads['eagle']}"), SETTINGS)
    assert [part.part for part in parts] == ["load_drafter", "measure_costs"]
    for name in ("measured_draft_s", "measured_verify_s"):
        assert len(applied[name]) == 4
        assert applied[name] == sorted(applied[name])
        assert all(seconds >= 0 for seconds in applied[name])
    (decoded,) = session.decode(chosen, [SequenceRequest(PROMPT, 20, 1)], SETTINGS)
    target = load_transformer(tiny.target, dtype=torch.float32)
    assert decoded.tokens == greedy_continuation(target, list(PROMPT), 20)


@pytest.mark.parametrize(
    ("k", "more", "says"),
    [
        (4, (), "method.k: drafts would be 4 tokens deep, but path:"),
        (4, (("tree_parents", (0, 1, 2, 3)),), "method.tree: it is 4 tokens deep"),
    ],
)
def test_no_more_tokens_than_heads(
    k: int, more: tuple[tuple[str, object], ...], says: str, session: NativeSession, heads: dict[str, Path]
) -> None:
    with pytest.raises(UnsupportedError, match="Draft at most 3 tokens") as caught:
        session.prepare(variant("medusa", k, *more), resolve_model(f"path:{heads['medusa']}"), SETTINGS)
    assert says in str(caught.value)


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def poisoned(tensors: dict[str, torch.Tensor]) -> None:
    next(iter(sorted(tensors.items())))[1].flatten()[0] = float("nan")


def misshapen(tensors: dict[str, torch.Tensor]) -> None:
    for name in ("fc.weight", "blocks.1.layers.0.weight"):
        if name in tensors:
            tensors[name] = tensors[name][:, :-1].contiguous()


def lacking(tensors: dict[str, torch.Tensor]) -> None:
    for name in ("layers.0.mlp.up_proj.weight", "blocks.0.layers.0.weight"):
        tensors.pop(name, None)


@pytest.mark.parametrize("method", ["eagle", "medusa"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (poisoned, "aren't finite"),
        (misshapen, "must have the shape"),
        (lacking, "lacks the tensor|holds no Medusa head"),
    ],
)
def test_corrupt_weights_are_refused(
    method: str,
    change: Callable[[dict[str, torch.Tensor]], None],
    says: str,
    session: NativeSession,
    heads: dict[str, Path],
) -> None:
    edit(heads[method], change)
    with pytest.raises(ModelSourceError, match=says):
        session.prepare(variant(method), resolve_model(f"path:{heads[method]}"), SETTINGS)


@pytest.mark.parametrize("method", ["eagle", "medusa"])
def test_a_cut_file_is_refused(method: str, session: NativeSession, heads: dict[str, Path]) -> None:
    file = heads[method] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelSourceError, match="Fetch it anew"):
        session.prepare(variant(method), resolve_model(f"path:{heads[method]}"), SETTINGS)


@pytest.mark.parametrize("method", ["eagle", "medusa"])
def test_pickled_weights_are_refused(method: str, heads: dict[str, Path]) -> None:
    (heads[method] / "model.safetensors").unlink()
    (heads[method] / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": [1.0]}))
    with pytest.raises(ModelSourceError, match="pickled weights"):
        resolve_model(f"path:{heads[method]}")


@pytest.mark.parametrize("ids", [[1, 1], [0, 300], [-1, 2], [[1, 2]], [0.5, 1.0]])
def test_a_wrong_draft_vocabulary_is_refused(
    ids: list[object], session: NativeSession, heads: dict[str, Path]
) -> None:
    np.save(heads["eagle"] / "draft_vocab.npy", np.array(ids))
    with pytest.raises(ModelSourceError, match="must hold distinct token ids from 0 to 299"):
        session.prepare(variant("eagle"), resolve_model(f"path:{heads['eagle']}"), SETTINGS)


@pytest.mark.parametrize("method", ["eagle", "medusa"])
@pytest.mark.parametrize("field", ["hidden_size", "vocab_size"])
def test_heads_for_another_target_are_refused(
    method: str,
    field: str,
    session: NativeSession,
    heads: dict[str, Path],
    tiny: TinyRun,
    make_tiny_llama: Callable[..., Path],
) -> None:
    config = json.loads((heads[method] / "config.json").read_text())
    (heads[method] / "config.json").write_text(json.dumps({**config, field: 128}))
    head = resolve_model(f"path:{heads[method]}")
    with pytest.raises(PairMismatchError, match=f"{field} is"):
        check_head_pair(resolve_model(f"path:{tiny.target}"), head)
    if method == "eagle":
        with pytest.raises(PairMismatchError, match=f"made for a target of {field} 128"):
            session.prepare(variant(method), head, SETTINGS)


def test_medusa_blocks_for_another_hidden_size_are_refused(heads: dict[str, Path], tiny: TinyRun) -> None:
    def shrink(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("blocks")]:
            tensors[name] = torch.zeros([32] * tensors[name].ndim)

    edit(heads["medusa"], shrink)
    target = load_transformer(tiny.target, dtype=torch.float32)
    with pytest.raises(PairMismatchError, match="made for a target of hidden_size 32"):
        load_medusa(heads["medusa"], target, tiny.target)


def test_the_public_medusa_names_are_read(heads: dict[str, Path], tiny: TinyRun) -> None:
    target = load_transformer(tiny.target, dtype=torch.float32)
    tensors = load_file(heads["medusa"] / "model.safetensors")
    for name in [name for name in tensors if name.startswith("blocks")]:
        # at zero any two heads agree
        tensors[name] = torch.randn(tensors[name].shape).to(torch.bfloat16) * 0.3
    save_file(tensors, heads["medusa"] / "model.safetensors")
    old = tiny.folder / "old"
    shutil.copytree(heads["medusa"], old)
    renamed = {}
    for head in range(3):
        for part in ("weight", "bias"):
            renamed[f"medusa_heads.{head}.0.linear.{part}"] = tensors[f"blocks.{head}.layers.0.{part}"]
        renamed[f"medusa_heads.{head}.1.weight"] = load_file(tiny.target / "model.safetensors")[
            "model.embed_tokens.weight"
        ]
    save_file({name: tensor.clone() for name, tensor in renamed.items()}, old / "model.safetensors")
    hidden = torch.randn(2, 64)
    ours = load_medusa(heads["medusa"], target, tiny.target, reduced_vocab=False).logits(hidden, 3)
    theirs = load_medusa(old, target, tiny.target).logits(hidden, 3)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("layout", ["draft_vocab", "token_map", "own_rows", "no_head"])
def test_a_reduced_medusa_vocabulary_is_read_in_every_layout(
    layout: str, heads: dict[str, Path], tiny: TinyRun
) -> None:
    target = load_transformer(tiny.target, dtype=torch.float32)
    ids = torch.from_numpy(DRAFT_VOCAB.astype(np.int64))

    def change(tensors: dict[str, torch.Tensor]) -> None:
        if layout == "no_head":
            tensors.pop("lm_head.weight")
        if layout in ("token_map", "own_rows"):
            tensors["token_map"] = ids
        if layout == "own_rows":
            tensors["lm_head.weight"] = tensors["lm_head.weight"][ids]

    edit(heads["medusa"], change)
    if layout in ("token_map", "own_rows"):
        (heads["medusa"] / "draft_vocab.npy").unlink()
    hidden = torch.randn(2, 64)
    reduced = load_medusa(heads["medusa"], target, tiny.target)
    assert reduced.vocab is not None
    assert torch.equal(reduced.vocab, ids)
    whole = load_medusa(heads["medusa"], target, tiny.target, reduced_vocab=False)
    torch.testing.assert_close(reduced.logits(hidden, 3), whole.logits(hidden, 3)[..., ids])


def test_an_eagle_head_without_embeddings_takes_the_targets(
    session: NativeSession, heads: dict[str, Path]
) -> None:
    edit(heads["eagle"], lambda tensors: tensors.__delitem__("embed_tokens.weight"))
    session.prepare(variant("eagle"), resolve_model(f"path:{heads['eagle']}"), SETTINGS)
    (decoded,) = session.decode(variant("eagle"), [SequenceRequest(PROMPT, 9, 1)], SETTINGS)
    assert len(decoded.tokens) == 9


def test_other_methods_are_refused(session: NativeSession) -> None:
    with pytest.raises(HarnessError, match=r"doesn't run method\.name='lookahead'"):
        session.prepare(Variant("lookahead", 2), None, SETTINGS)


def test_a_saved_eagle_head_computes_what_was_trained(tiny: TinyRun) -> None:
    torch.manual_seed(3)
    student = EagleStudent(tiny.target, EagleSettings(), draft_vocab=DRAFT_VOCAB)
    student.save(tiny.target, tiny.folder / "trained")
    target = load_transformer(tiny.target, dtype=torch.float32)
    head = load_eagle(tiny.folder / "trained", target, tiny.target)
    tokens, hidden = torch.randint(0, 300, (2, 9)), torch.randn(2, 9, 64)
    with torch.no_grad():
        pairs = torch.cat((torch.nn.functional.embedding(tokens, target.embeddings), hidden), -1)
        expected = student._step(pairs, [], student._rotation_rows(9))
        logits = student.logits(expected).float()
    found = head.run(tokens, hidden, head.model.new_cache(capacity=9, batch=2))
    assert float((found - expected).norm()) < 0.02 * float(expected.norm())
    said = head.model.head(found)
    assert float((said - logits).norm()) < 0.03 * float(logits.norm())
