from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.errors import ModelSourceError
from harness.models.checkpoint import ResolvedModel
from harness.models.head_asset import export_head_asset
from harness.models.sources import resolve_model

OWN = {"fc.weight": torch.ones(2, 4), "layers.0.mlp.up_proj.weight": torch.zeros(3, 2)}
CONFIG = {"vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 1, "model_type": "llama"}


@pytest.fixture
def base(make_tiny_llama: Callable[..., Path]) -> ResolvedModel:
    return resolve_model(f"path:{make_tiny_llama('base')}")


@pytest.fixture
def head(tmp_path: Path) -> Path:
    folder = tmp_path / "run/model"
    folder.mkdir(parents=True)
    shared = {"embed_tokens.weight": torch.ones(300, 64), "lm_head.weight": torch.ones(5, 64)}
    save_file({**OWN, **shared}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    np.save(folder / "draft_vocab.npy", np.arange(5, dtype=np.int32))
    return folder


@pytest.fixture
def asset(tmp_path: Path, head: Path, base: ResolvedModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "assets/tiny-eagle"
    export_head_asset(head, folder, kind="eagle", base=base, card={"steps": 3})
    monkeypatch.setattr("harness.models.drafter_asset.assets_dir", lambda: tmp_path / "assets")
    return folder


def test_an_asset_holds_what_was_trained(asset: Path, base: ResolvedModel) -> None:
    tensors = load_file(asset / "model.safetensors")
    assert set(tensors) == set(OWN)
    assert all(tensors[name].equal(OWN[name]) for name in OWN)
    card = json.loads((asset / "card.json").read_text())
    assert (card["kind"], card["recipe"]) == ("eagle", {"steps": 3})
    assert set(card["sha256"]) == {"config.json", "draft_vocab.npy", "model.safetensors"}
    assert card["base_weights_sha256"] == base.weights_sha256


def test_it_is_used_where_it_lies(asset: Path, base: ResolvedModel) -> None:
    found = resolve_model("asset:tiny-eagle", base_ref=base.ref)
    assert found.path == asset
    assert found.facts.hidden_size == 64
    assert resolve_model("asset:tiny-eagle").revision == found.revision


def test_another_target_is_refused(asset: Path, make_tiny_llama: Callable[..., Path]) -> None:
    other = make_tiny_llama("other", seed=9)
    with pytest.raises(ModelSourceError, match="asset:tiny-eagle: was trained for"):
        resolve_model("asset:tiny-eagle", base_ref=f"path:{other}")


def test_a_damaged_file_is_refused(asset: Path, base: ResolvedModel) -> None:
    np.save(asset / "draft_vocab.npy", np.arange(6, dtype=np.int32))
    with pytest.raises(ModelSourceError, match="its SHA-256 must be"):
        resolve_model("asset:tiny-eagle", base_ref=base.ref)


def test_a_folder_without_trained_tensors_is_refused(head: Path, base: ResolvedModel, tmp_path: Path) -> None:
    save_file({"embed_tokens.weight": torch.ones(300, 64)}, head / "model.safetensors")
    with pytest.raises(ModelSourceError, match="holds no trained tensor"):
        export_head_asset(head, tmp_path / "assets/none", kind="eagle", base=base, card={})
    assert not (tmp_path / "assets/none").exists()
