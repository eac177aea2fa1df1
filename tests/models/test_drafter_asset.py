from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.errors import ModelSourceError
from harness.models.checkpoint import ResolvedModel
from harness.models.drafter_asset import export_drafter_asset
from harness.models.sources import resolve_model


@pytest.fixture
def target(make_tiny_llama: Callable[..., Path], cache: Path) -> ResolvedModel:
    return resolve_model(f"path:{make_tiny_llama('target')}")


@pytest.fixture
def drafter(make_tiny_llama: Callable[..., Path], target: ResolvedModel) -> Path:
    """One trained layer and norm on the target's embeddings."""
    folder = make_tiny_llama("drafter", seed=5, num_layers=1)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"] = load_file(target.path / "model.safetensors")[
        "model.embed_tokens.weight"
    ]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    np.save(folder / "draft_vocab.npy", np.array([5, 3, 200], dtype=np.int64))
    return folder


@pytest.fixture
def asset(drafter: Path, target: ResolvedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("harness.models.drafter_asset.assets_dir", lambda: tmp_path / "assets")
    folder = tmp_path / "assets/tiny-draft"
    export_drafter_asset(drafter, folder, base=target, card={"recipe": "test"})
    return folder


def test_asset_holds_the_trained_tensors_alone(asset: Path, target: ResolvedModel) -> None:
    layers = load_file(asset / "layers.safetensors")
    assert "model.embed_tokens.weight" not in layers
    assert {name.rsplit(".", 1)[0] for name in layers} >= {"model.norm", "model.layers.0.self_attn.q_proj"}
    card = json.loads((asset / "card.json").read_text())
    assert (card["name"], card["kind"], card["num_layers"]) == ("tiny-draft", "draft_model", 1)
    assert (card["base"], card["base_weights_sha256"]) == (target.ref, target.weights_sha256)
    assert card["recipe"] == {"recipe": "test"}
    assert np.load(asset / "draft_vocab.npy").dtype == np.int32


def test_assembled_drafter_is_the_trained_checkpoint(
    asset: Path, drafter: Path, target: ResolvedModel
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = resolve_model("asset:tiny-draft")
    assert (model.facts.num_layers, model.facts.vocab_size) == (1, 300)
    assert np.load(model.path / "draft_vocab.npy").tolist() == [5, 3, 200]
    ids = torch.tensor([[1, 70, 80, 90]])
    with torch.inference_mode():
        logits = [AutoModelForCausalLM.from_pretrained(f)(ids).logits for f in (model.path, drafter)]
    torch.testing.assert_close(*logits, rtol=0, atol=0)
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (model.path, target.path))
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.chat_template == theirs.chat_template


def test_assembled_once(asset: Path, target: ResolvedModel) -> None:
    first = resolve_model("asset:tiny-draft", base_ref=target.ref)
    assert first.setup_s > 0
    shutil.rmtree(target.path)  # without a base to compare, the cache is enough
    assert resolve_model("asset:tiny-draft").setup_s == 0


def test_retrained_asset_replaces_the_cached_one(asset: Path, drafter: Path, target: ResolvedModel) -> None:
    first = resolve_model("asset:tiny-draft")
    tensors = load_file(drafter / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, drafter / "model.safetensors", metadata={"format": "pt"})
    export_drafter_asset(drafter, asset, base=target, card={})
    second = resolve_model("asset:tiny-draft")
    assert second.path == first.path
    assert second.revision != first.revision


def test_another_base_is_refused_even_when_cached(asset: Path, make_tiny_llama: Callable[..., Path]) -> None:
    resolve_model("asset:tiny-draft")
    other = make_tiny_llama("other", seed=9)
    with pytest.raises(ModelSourceError, match=r"was trained for path:.*target with weights") as caught:
        resolve_model("asset:tiny-draft", base_ref=f"path:{other}")
    assert "train a drafter" in str(caught.value)


def test_same_weights_elsewhere_are_the_same_base(asset: Path, target: ResolvedModel, tmp_path: Path) -> None:
    shutil.copytree(target.path, tmp_path / "copy")
    shutil.rmtree(target.path)
    assert resolve_model("asset:tiny-draft", base_ref=f"path:{tmp_path / 'copy'}").facts.num_layers == 1


def test_damaged_asset_is_refused(asset: Path) -> None:
    layers = asset / "layers.safetensors"
    layers.write_bytes(layers.read_bytes()[:-1])
    with pytest.raises(ModelSourceError, match=r"layers\.safetensors: its SHA-256 must be"):
        resolve_model("asset:tiny-draft")


def test_config_and_layers_must_agree(drafter: Path, asset: Path, target: ResolvedModel) -> None:
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    export_drafter_asset(drafter, asset, base=target, card={})
    with pytest.raises(ModelSourceError, match=r"9 tensors don't fit .* model\.layers\.1\.input_layernorm"):
        resolve_model("asset:tiny-draft")


def test_unknown_asset_lists_the_shipped(asset: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"asset:other: no such drafter .*; shipped: tiny-draft"):
        resolve_model("asset:other")


def test_other_kinds_are_no_models(asset: Path) -> None:
    card = json.loads((asset / "card.json").read_text())
    (asset / "card.json").write_text(json.dumps({**card, "kind": "lookahead"}))
    with pytest.raises(ModelSourceError, match="kind 'lookahead'"):
        resolve_model("asset:tiny-draft")


def test_export_refuses_embeddings_that_were_trained(
    make_tiny_llama: Callable[..., Path], target: ResolvedModel, tmp_path: Path
) -> None:
    folder = make_tiny_llama("free", seed=7, num_layers=1)
    with pytest.raises(ModelSourceError, match=r"model\.embed_tokens\.weight isn't the base's"):
        export_drafter_asset(folder, tmp_path / "assets/free", base=target, card={})
    assert list((tmp_path / "assets").iterdir()) == []


@pytest.mark.parametrize("ids", [[1, 1], [300], [-1], []])
def test_export_refuses_a_malformed_draft_vocabulary(
    ids: list[int], drafter: Path, target: ResolvedModel, tmp_path: Path
) -> None:
    np.save(drafter / "draft_vocab.npy", np.array(ids, dtype=np.int64))
    with pytest.raises(ModelSourceError, match="distinct token ids from 0 to 299"):
        export_drafter_asset(drafter, tmp_path / "assets/bad", base=target, card={})
