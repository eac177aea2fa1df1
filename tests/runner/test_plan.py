from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from runner.scripted_backend import Script, ScriptedBackend
from tiny_runs import TinyRun, write_workload

from harness.config.schema import MethodConfig
from harness.errors import ConfigError, ModelSourceError, PairMismatchError, UnsupportedError, WorkloadError
from harness.runner.plan import plan_cell


def test_a_plan_holds_all_that_is_known_before_an_engine_starts(tiny: TinyRun) -> None:
    from transformers import AutoTokenizer

    plan = plan_cell(tiny.config(method__k=[2, 4], compare=[MethodConfig("ngram", k=3)]))
    assert [v.variant_id for v in plan.variants] == [
        "autoregressive",
        "draft_model-k2",
        "draft_model-k4",
        "ngram-k3",
    ]
    assert [prompt.prompt_id for prompt in plan.prompts] == [f"mine-{n}" for n in range(4)]
    assert [prompt.task for prompt in plan.prompts] == ["code", "chat", "code", "chat"]
    assert [prompt.prompt_id for prompt in plan.warmup] == ["warm-0"]
    tokenizer = AutoTokenizer.from_pretrained(tiny.target)
    rendered = "<s>user\nhello there</s>\n<s>assistant\n"
    assert list(plan.prompts[1].tokens) == tokenizer.encode(rendered, add_special_tokens=False)
    assert plan.decoding.eos_ids == {2}
    longest = max(len(prompt.tokens) for prompt in (*plan.prompts, *plan.warmup))
    assert plan.decoding.context_tokens == longest + 8
    assert list(plan.drafters) == [f"path:{tiny.drafter}"]
    assert plan.facts["target_revision"] == plan.engine.target.revision
    assert (plan.facts["workload"], plan.facts["num_prompts"]) == ("mine", 4)


def test_ignoring_eos_leaves_no_end_token(tiny: TinyRun) -> None:
    assert plan_cell(tiny.config(workload__ignore_eos=True)).decoding.eos_ids == frozenset()


def test_as_many_prompts_as_asked_for(tiny: TinyRun) -> None:
    plan = plan_cell(tiny.config(workload__num_prompts=3, measure__warmup_prompts=0))
    assert [prompt.prompt_id for prompt in plan.prompts] == ["mine-0", "mine-1", "mine-2"]
    assert plan.warmup == ()
    with pytest.raises(WorkloadError, match=r"mine\.jsonl: num_prompts must be between 1 and 4, got 5"):
        plan_cell(tiny.config(workload__num_prompts=5))


def test_a_prompt_can_lower_the_limit_but_not_raise_it(tiny: TinyRun) -> None:
    lines = tiny.workload.read_text().splitlines()
    for index, limit in ((1, 3), (2, 30)):
        lines[index] = json.dumps({**json.loads(lines[index]), "max_output_tokens": limit})
    tiny.workload.write_text("\n".join(lines))
    assert [prompt.max_new_tokens for prompt in plan_cell(tiny.config()).prompts] == [3, 8, 8, 8]


def test_missing_models_are_named(tiny: TinyRun) -> None:
    with pytest.raises(ModelSourceError, match="no-such-folder isn't a folder"):
        plan_cell(tiny.config(pair__target="path:/no-such-folder"))
    with pytest.raises(ModelSourceError, match="no-such-drafter isn't a folder"):
        plan_cell(tiny.config(pair__drafter="path:/no-such-drafter"))
    with pytest.raises(ModelSourceError, match="must start with one of pypi:, hub:, path:, asset:"):
        plan_cell(tiny.config(pair__target="smollm"))


def test_a_drafter_with_another_vocabulary_is_refused(
    tiny: TinyRun, make_tiny_llama: Callable[..., Path]
) -> None:
    other = make_tiny_llama("other", num_layers=1)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(PairMismatchError, match="2 of 300 tokens differ"):
        plan_cell(tiny.config(pair__drafter=f"path:{other}"))
    # only a variant that uses the drafter needs it
    plan_cell(tiny.config(pair__drafter=f"path:{other}", method=MethodConfig("ngram")))


def test_a_prompt_longer_than_the_context_is_named(tiny: TinyRun) -> None:
    write_workload(tiny.workload, ("short", "much " * 100))
    with pytest.raises(WorkloadError, match=r"mine, prompt 'mine-1': \d{3} prompt tokens and 8 output") as e:
        plan_cell(tiny.config())
    assert "context of 256 tokens" in str(e.value)
    assert "lower workload.max_output_tokens" in str(e.value)


def test_the_shorter_context_of_the_pair_counts(tiny: TinyRun, make_tiny_llama: Callable[..., Path]) -> None:
    short = make_tiny_llama("short", num_layers=1, max_position_embeddings=16)
    with pytest.raises(WorkloadError, match="the pair's context of 16 tokens"):
        plan_cell(tiny.config(pair__drafter=f"path:{short}"))


def test_warmup_must_not_be_measured(tiny: TinyRun) -> None:
    write_workload(tiny.warmup, ("fine", "Hello  THERE"))
    with pytest.raises(WorkloadError, match=r"warm-up prompt 'warm-1' equals 'mine-1'"):
        plan_cell(tiny.config())
    with pytest.raises(WorkloadError, match="must not be measured"):
        plan_cell(tiny.config(workload__warmup=str(tiny.workload)))


def test_workload_errors_name_the_file(tiny: TinyRun) -> None:
    with pytest.raises(WorkloadError, match=r"unknown workload 'cod'\. Did you mean 'code'"):
        plan_cell(tiny.config(workload__name="cod"))
    with pytest.raises(WorkloadError, match=r"nowhere\.jsonl: no such workload file"):
        plan_cell(tiny.config(workload__name="nowhere.jsonl"))
    tiny.workload.write_text("")
    with pytest.raises(WorkloadError, match=r"mine\.jsonl: the file is empty"):
        plan_cell(tiny.config())


def test_batches_above_the_backends_limit_are_refused(tiny: TinyRun, script: Script) -> None:
    assert plan_cell(tiny.config(batch_size=2)).decoding.batch_size == 2
    assert plan_cell(tiny.config(batch_size=2, backend__name="scripted")).backend is ScriptedBackend
    with pytest.raises(
        UnsupportedError, match=r"scripted decodes at most 2 sequence.*got 3\. Set batch_size=2"
    ):
        plan_cell(tiny.config(batch_size=3, backend__name="scripted"))


def test_a_batch_needs_as_many_prompts(tiny: TinyRun) -> None:
    assert plan_cell(tiny.config(batch_size=4)).decoding.batch_size == 4
    with pytest.raises(
        WorkloadError, match=r"batch_size: 5 .* but 4 prompts are measured\. Lower batch_size"
    ):
        plan_cell(tiny.config(batch_size=5))


def test_two_variants_of_one_name_are_refused(tiny: TinyRun) -> None:
    with pytest.raises(ConfigError, match="must not repeat a variant"):
        plan_cell(tiny.config(compare=[MethodConfig("draft_model", k=2)]))


def test_the_cell_id_follows_what_is_measured(
    tiny: TinyRun, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cell_id(**changes: object) -> str:
        return plan_cell(tiny.config(backend__name="scripted", **changes)).cell_id

    first = cell_id()
    assert cell_id() == cell_id(name="other", measure__max_repeats=9) == first
    assert cell_id(sampling__temperature=0.5) != first
    monkeypatch.setattr(ScriptedBackend, "release", "2")
    assert cell_id() != first
    monkeypatch.setattr(ScriptedBackend, "release", "1")
    for file in (tiny.workload, tiny.warmup):
        text = file.read_text()
        file.write_text(text + "\n")
        assert cell_id() != first
        file.write_text(text)
    for folder in (tiny.target, tiny.drafter):
        weights = folder / "model.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert cell_id() != first
        weights.write_bytes(content)
    assert cell_id() == first
