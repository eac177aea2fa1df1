"""The record that a cell begins with: each variant names its drafter and what the drafter's files hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tiny_runs import TinyRun

from harness.config.schema import MethodConfig
from harness.models.sources import resolve_model
from harness.runner.plan import plan_cell
from harness.runner.record import new_record
from harness.training.medusa import MedusaSettings, MedusaStudent


def revisions(tiny: TinyRun, heads: Path) -> dict[str, str | None]:
    medusa = MethodConfig("medusa", k=1, drafter=f"path:{heads}")
    record = new_record(plan_cell(tiny.config(compare=[medusa, MethodConfig("ngram", k=2)])))
    return {row["variant_id"]: row["drafter_revision"] for row in record.variants}


def test_draft_models_and_heads_are_named_by_their_content(tiny: TinyRun) -> None:
    torch.manual_seed(0)
    heads = tiny.folder / "heads"
    vocab = np.arange(2, 60, dtype=np.int32)
    MedusaStudent(tiny.target, MedusaSettings(num_heads=1), draft_vocab=vocab).save(tiny.target, heads)
    before = revisions(tiny, heads)
    assert before == {
        "autoregressive": None,
        "draft_model-k2": resolve_model(f"path:{tiny.drafter}").revision,
        "medusa-k1": resolve_model(f"path:{heads}").revision,
        "ngram-k2": None,
    }
    # trained on, under the same name
    for folder in (tiny.drafter, heads):
        (file,) = folder.glob("*.safetensors")
        tensors = {name: tensor * 1.5 for name, tensor in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})
    after = revisions(tiny, heads)
    assert {name for name in before if before[name] != after[name]} == {"draft_model-k2", "medusa-k1"}
