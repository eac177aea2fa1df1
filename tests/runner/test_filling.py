from __future__ import annotations

import pytest
from tiny_runs import TinyRun

from harness.errors import UnsupportedError
from harness.models.tokenizer import load_tokenizer
from harness.runner.filling import filled_up
from harness.runner.plan import plan_cell
from harness.workloads import Message, Prompt, load_workload


@pytest.mark.parametrize("num_tokens", [100, 1500, 60_000])
def test_a_prompt_gets_other_text_before_its_own(tiny: TinyRun, num_tokens: int) -> None:
    tokenizer, filler = load_tokenizer(tiny.target), load_workload("summarization")
    prompt = (
        filler.prompts[3] if num_tokens > 5000 else Prompt("a", "chat", (Message("user", "hello"),), None)
    )
    filled = filled_up(prompt, num_tokens, tokenizer=tokenizer, filler=filler)
    assert len(tokenizer.encode_prompt(filled)) == pytest.approx(num_tokens, abs=8)
    assert filled.content.endswith(f"\n\n{prompt.content}")
    # its own text isn't in what was put before it, and the same call gives the same text
    assert filled.content.count(prompt.content) == 1
    assert filled == filled_up(prompt, num_tokens, tokenizer=tokenizer, filler=filler)
    other = filled_up(
        Prompt("b", "chat", prompt.messages, None), num_tokens, tokenizer=tokenizer, filler=filler
    )
    assert other.content != filled.content


def test_a_long_prompt_and_raw_text_are_handled(tiny: TinyRun) -> None:
    tokenizer, filler = load_tokenizer(tiny.target), load_workload("chat")
    raw = Prompt("a", "raw", None, "Dear customer,")
    assert filled_up(raw, 5, tokenizer=tokenizer, filler=filler) == raw
    filled = filled_up(raw, 200, tokenizer=tokenizer, filler=filler)
    assert filled.messages is None
    assert len(tokenizer.encode_prompt(filled)) == pytest.approx(200, abs=8)


def test_a_cell_measures_filled_prompts_under_another_id(tiny: TinyRun) -> None:
    plain = plan_cell(tiny.config())
    filled = plan_cell(tiny.config(workload__prompt_tokens=120, workload__filler=str(tiny.workload)))
    assert all(len(prompt.tokens) == pytest.approx(120, abs=8) for prompt in filled.prompts)
    assert max(len(prompt.tokens) for prompt in filled.warmup) < 100
    assert filled.cell_id != plain.cell_id
    assert filled.facts["prompt_tokens"] == 120


def test_the_simulator_fills_no_prompts(tiny: TinyRun) -> None:
    from simulated_cells import simulated

    with pytest.raises(UnsupportedError, match="the simulator has no tokenizer"):
        plan_cell(simulated(workload__prompt_tokens=100))
    with pytest.raises(UnsupportedError, match=r"no weights to quantise\. Set quantization=none"):
        plan_cell(simulated(quantization__target="int8"))
