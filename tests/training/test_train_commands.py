from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from harness.__main__ import main
from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend
from harness.models.sources import resolve_model
from harness.records import Variant
from harness.training.corpus import read_corpus, shards


@pytest.fixture
def target(make_tiny_llama: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.models.drafter_asset.assets_dir", lambda: tmp_path / "assets")
    return make_tiny_llama(max_position_embeddings=1024, initializer_range=0.3)


def corpus_command(target: Path, out: Path) -> list[str]:
    line = "train corpus --answers 10 --self-prompts 3 --batch 4 --max-prompt-tokens 800 --max-new-tokens 6"
    return [*line.split(), "--target", f"path:{target}", "--out", str(out)]


def draft_command(target: Path, corpus: Path, out: Path) -> list[str]:
    line = "train draft --layers 1 --draft-vocab 40 --epochs 2 --held-out 2 --threads 1"
    return [*line.split(), "--target", f"path:{target}", "--corpus", str(corpus), "--out", str(out)]


def test_from_a_target_to_an_asset_that_drafts(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, out, asset = tmp_path / "corpus", tmp_path / "run", tmp_path / "assets/tiny-draft"
    assert main(corpus_command(target, corpus)) == 0
    answers = list(read_corpus(corpus))
    assert len(answers) == 10
    written = sum(len(one.answer_tokens) for one in answers)
    assert capsys.readouterr().out.splitlines()[-1] == f"corpus: {corpus} ({written} answer tokens)"
    assert main(corpus_command(target, corpus)) == 0  # complete: nothing is added
    assert len(shards(corpus)) == 1

    assert main([*draft_command(target, corpus, out), "--asset", str(asset)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"checkpoint: {out / 'model'}", f"asset: {asset}"]
    facts = json.loads((out / "facts.json").read_text())
    assert facts["settings"]["layer_indices"] == [1]
    assert facts["corpus"]["answers"] + facts["held_out"]["answers"] <= 10
    assert facts["training"]["steps"] == facts["held_out"]["step"] > 0
    assert 0 <= facts["held_out"]["overlap"] <= 1
    assert json.loads((asset / "card.json").read_text())["recipe"] == facts

    base = resolve_model(f"path:{target}")
    assembled = resolve_model("asset:tiny-draft", base_ref=base.ref)
    trained = load_file(out / "model/model.safetensors")
    for name, tensor in load_file(assembled.path / "model.safetensors").items():
        assert tensor.equal(trained[name]), name
    vocab = np.load(assembled.path / "draft_vocab.npy")
    assert len(set(vocab.tolist())) == 40
    assert 2 in vocab  # the end token is always among them
    check_drafting(target, assembled.ref)


def check_drafting(target: Path, ref: str) -> None:
    """The drafter drafts from its 40 tokens, and the output is the target's."""
    base = resolve_model(f"path:{target}")
    session = NativeBackend.open(EngineSettings(base, "cpu", "float32", 1, "none", "none"))
    settings = DecodingSettings(0.0, 0, 1.0, frozenset({2}), 60)
    options = (("draft_sampling", "sampled"), ("draft_vocab", True))
    outputs = []
    for variant in (Variant("autoregressive"), Variant("draft_model", 3, ref, options)):
        drafter = resolve_model(ref, base_ref=base.ref) if variant.drafter else None
        applied, _ = session.prepare(variant, drafter, settings)
        (sequence,) = session.decode(variant, [SequenceRequest((60, 61, 62), 20, 1)], settings)
        outputs.append(sequence.tokens)
    assert (applied["draft_vocab_size"], applied["drafter_layers"]) == (40, 1)
    assert outputs[0] == outputs[1]
    session.close()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--layers", "2"], "--layers: must be from 0 to 1, got [2]"),
        (["--draft-vocab", "301"], "--draft-vocab: must be from 1 to 300, got 301"),
        (["--draft-vocab", "0"], "--draft-vocab: must be from 1 to 300, got 0"),
        (["--held-out", "0"], "--held-out: must be at least 1, got 0"),
        (["--held-out", "10"], "--held-out: must leave answers to train on, got 10"),
        (["--target", "path:/nowhere"], "/nowhere isn't a folder"),
        (["--corpus", "/nowhere"], "/nowhere holds no corpus shard"),
    ],
)
def test_bad_input_is_one_line(
    more: list[str], says: str, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.tiny_corpus import answers_of

    from harness.training.corpus import write_shard

    write_shard(tmp_path, 0, answers_of(target, count=4, max_new_tokens=3))
    assert main([*draft_command(target, tmp_path, tmp_path / "run"), *more]) == 2
    output, errors = capsys.readouterr()
    assert says in errors
    assert errors.startswith("error: ")
    assert errors.splitlines()[-1] == errors.strip()
    assert output == ""
    assert not (tmp_path / "run").exists()
