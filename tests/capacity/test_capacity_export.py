from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from capacity.replicas import costs, replica, shapes

from harness.capacity.calibration import MeasuredRange, MethodModel, ReplicaModel
from harness.capacity.export import Choice, export_files, vllm_config
from harness.capacity.memory import Memory
from harness.capacity.outcome import Estimate
from harness.capacity.plan import ConfigurationPlan, Option, Plan, _recommended
from harness.capacity.replica import Bounds
from harness.capacity.settings import PlanSettings
from harness.capacity.sizing import LoadPoint, Sizing
from harness.errors import UnsupportedError

BANDS = ((1, 4, 4), (5, 16, 2), (17, 64, 0))


def option(policy: str, k: int, most: float | None, method: str = "draft_model") -> Option:
    sizing = Sizing((LoadPoint(1.0, {"x": Estimate(1.0)}),), 10.0, most, None)
    return Option(method, policy, k, BANDS if policy == "by_batch" else (), sizing, ())


def configuration(
    recommended: Option | None, *others: Option, method: str = "draft_model"
) -> ConfigurationPlan:
    import pandas as pd

    step = costs()
    applied = {"draft_sampling": "sampled", "min_ngram": 2, "max_ngram": 5}
    model = MethodModel(
        method, "hub:org/small@abc", step, replica(step).acceptances, {2: applied, 4: applied}
    )
    facts = {"backend": "native", "device": "cpu", "temperature": 0.7, "target": "hub:org/large"}
    plain = option("never", 0, 3.0, "autoregressive")
    return ConfigurationPlan(
        ReplicaModel(
            facts, ("c",), step, {method: model}, MeasuredRange((1, 8), 9, 9, 9), Memory(), pd.DataFrame(), {}
        ),
        Bounds(max_batch=64),
        shapes(),
        64,
        (plain, *([recommended] if recommended else []), *others),
        recommended,
        (),
        (),
        ("prompts are long",),
    )


def files(recommended: Option | None, *others: Option, method: str = "draft_model") -> dict[str, str]:
    one = configuration(recommended, *others, method=method)
    return export_files(Plan("mine", PlanSettings(), (one,)), one)


def test_k_by_batch_reaches_the_engine_that_takes_it_and_the_others_get_the_best_single_k() -> None:
    found = files(option("by_batch", 4, 6.0), option("fixed", 2, 5.0), option("fixed", 4, 4.0))
    assert json.loads(found["vllm_speculative_config.json"]) == {
        "method": "draft_model",
        "model": "org/small",
        "draft_sample_method": "probabilistic",
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 16, 2], [17, 64, 0]],
    }
    assert "--spec-draft-n-max 2" in found["llama_cpp.sh"]
    assert "--spec-type draft-simple" in found["llama_cpp.sh"]
    assert "--speculative-num-steps 2" in found["sglang.sh"]
    assert "--speculative-num-draft-tokens 3" in found["sglang.sh"]
    assert "max_draft_len: 2" in found["tensorrt_llm.yaml"]
    for name in ("vllm.sh", "llama_cpp.sh", "sglang.sh", "tensorrt_llm.yaml"):
        assert "# A replica carries 6 requests/s within the limits." in found[name]
        assert "# Without speculation it carries 3 requests/s" in found[name]
        assert "# Extrapolated or unknown: prompts are long." in found[name]


def test_the_scripts_are_shell_and_the_yaml_is_yaml(tmp_path: Path) -> None:
    import yaml

    found = files(option("fixed", 4, 6.0))
    for name in ("vllm.sh", "llama_cpp.sh", "sglang.sh"):
        (tmp_path / name).write_text(found[name])
        subprocess.run(["bash", "-n", str(tmp_path / name)], check=True)
    read = yaml.safe_load(found["tensorrt_llm.yaml"])
    assert read["speculative_config"] == {
        "decoding_type": "Draft_Target",
        "max_draft_len": 4,
        "speculative_model": "org/small",
    }


def test_prompt_lookup() -> None:
    found = files(option("fixed", 4, 6.0, "ngram"), method="ngram")
    config = json.loads(found["vllm_speculative_config.json"])
    assert config == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }
    assert "--spec-ngram-simple-size-m 4" in found["llama_cpp.sh"]
    assert "NGram" in found["tensorrt_llm.yaml"]


def test_plain_decoding_exports_no_speculation() -> None:
    found = files(option("never", 0, 6.0, "autoregressive"))
    assert "vllm_speculative_config.json" not in found
    assert not any(
        "spec" in line for text in found.values() for line in text.splitlines() if line[0:1] != "#"
    )


def test_nothing_to_export() -> None:
    with pytest.raises(UnsupportedError, match="no option keeps the limits"):
        files(None)
    with pytest.raises(UnsupportedError, match="medusa: can be exported for"):
        files(option("fixed", 4, 6.0, "medusa"), method="medusa")


def test_vllm_takes_the_configuration() -> None:
    """Against vLLM's own classes: the keys, and the schedule of k by batch."""
    pytest.importorskip("vllm", reason="vLLM isn't installed")
    from dataclasses import fields

    from vllm.config.speculative import SpeculativeConfig
    from vllm.v1.spec_decode.dynamic.utils import validate_and_normalize_dynamic_sd_schedule

    choice = Choice("draft_model", 4, BANDS, None, None, {}, 64, ())
    config = vllm_config(choice)
    assert set(config) <= {item.name for item in fields(SpeculativeConfig)}
    schedule = config["num_speculative_tokens_per_batch_size"]
    assert validate_and_normalize_dynamic_sd_schedule(schedule) == list(BANDS)
    lookup = vllm_config(replace(choice, method="ngram", bands=()))
    made = SpeculativeConfig(**lookup, target_model_config=None, target_parallel_config=None)
    assert made.num_speculative_tokens == 4


def test_what_changes_the_output_is_neither_recommended_nor_exported() -> None:
    plain, exact = option("never", 0, 3.0, "autoregressive"), option("fixed", 2, 4.0)
    typical = replace(option("fixed", 2, 9.0, "draft_model typical0.09"), lossless=False)
    assert _recommended([plain, exact, typical]) is exact
    assert _recommended([plain, typical]) is plain
    with pytest.raises(UnsupportedError, match=r"draft_model typical0\.09: isn't lossless"):
        files(typical, method="draft_model typical0.09")
