from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import pytest

from harness.config.schema import HarnessConfig, MethodConfig, PairConfig
from harness.config.validate import k_values, validate
from harness.errors import ConfigError


def config(**changes: Any) -> HarnessConfig:
    """A valid configuration with some values replaced: `sampling__top_p=2` sets `sampling.top_p`."""
    made = HarnessConfig(pair=PairConfig("p", "path:t", "path:d"))
    for name, value in changes.items():
        *parents, leaf = name.split("__")
        setattr(attrgetter(".".join(parents))(made) if parents else made, leaf, value)
    return made


def refusal(**changes: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        validate(config(**changes))
    return caught.value


def test_the_defaults_are_valid() -> None:
    validate(config())


@pytest.mark.parametrize(
    "k", [0, -1, 1.5, 2.0, [], [1, 1], [2, 0], ["x"], "x", "5", True, None, 65, math.nan]
)
def test_k_must_be_whole_numbers_above_0(k: Any) -> None:
    for field, error in (
        ("method", refusal(method__k=k)),
        ("compare[0]", refusal(compare=[MethodConfig("ngram", k=k)])),
    ):
        assert error.field == f"{field}.k"
        assert "such as method.k=5 or 'method.k=[1,3,5]'" in str(error)


@pytest.mark.parametrize(("k", "expected"), [(1, [1]), (64, [64]), ([3, 1, 2], [3, 1, 2]), ((4,), [4])])
def test_k_values_keep_the_order_given(k: Any, expected: list[int]) -> None:
    assert k_values(MethodConfig(k=k)) == expected


def test_k_means_nothing_to_the_baseline() -> None:
    validate(config(method=MethodConfig("autoregressive", k=0)))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("sampling__temperature", -1.0, "0 or more, got -1.0. 0 is greedy."),
        ("sampling__temperature", math.nan, "finite number of 0 or more, got nan"),
        ("sampling__temperature", math.inf, "finite number of 0 or more, got inf"),
        ("sampling__top_p", 0.0, "above 0 and up to 1, got 0.0"),
        ("sampling__top_p", 2.0, "above 0 and up to 1, got 2.0"),
        ("sampling__top_p", math.nan, "above 0 and up to 1, got nan"),
        ("sampling__top_k", -1, "at least 0, got -1"),
        ("batch_size", 0, "at least 1, got 0"),
        ("backend__num_threads", 0, "at least 1, got 0"),
        ("backend__name", "nativ", "Did you mean 'native'"),
        ("backend__dtype", "float64", "Known: bfloat16, float16, float32"),
        ("backend__device", "gpu", "Known: auto, cpu, cuda"),
        ("quantization__target", "int3", "Known: fp8, int4, int8, none"),
        ("quantization__drafter", "int3", "Known: auto, fp8, int4, int8, none"),
        ("workload__num_prompts", 0, "at least 1, got 0"),
        ("workload__max_output_tokens", 1, "at least 2, got 1"),
        ("measure__warmup_prompts", -1, "at least 0, got -1"),
        ("measure__seed", -1, "at least 0, got -1"),
        ("measure__min_repeats", 0, "at least 1, got 0"),
        ("measure__target_precision", 0.0, "above 0, got 0"),
        ("measure__target_precision", math.nan, "above 0, got nan"),
        ("measure__max_time_s", 0.0, "above 0, got 0"),
        ("measure__max_time_s", math.nan, "above 0, got nan"),
        ("method__name", "ngrm", "Did you mean 'ngram'"),
        ("method__min_ngram", 0, "at least 1, got 0"),
        ("method__draft_sampling", "gredy", "Did you mean 'greedy'"),
    ],
)
def test_values_out_of_range_name_their_field(name: str, value: Any, says: str) -> None:
    error = refusal(**{name: value})
    assert error.field == name.replace("__", ".")
    assert says in str(error)


def test_methods_to_compare_are_checked_too() -> None:
    error = refusal(compare=[MethodConfig("ngram"), MethodConfig("ngrm")])
    assert (error.field, error.received) == ("compare[1].name", "ngrm")


def test_ends_of_a_range_must_be_in_order() -> None:
    assert "measure.max_repeats: must be at least 9, got 5" in str(refusal(measure__min_repeats=9))
    assert "method.max_ngram: must be at least 4, got 3" in str(refusal(method__min_ngram=4))


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "a b", ""])
def test_the_name_must_be_fit_for_a_folder(name: str) -> None:
    error = refusal(name=name)
    assert error.field == "name"
    assert str(error).endswith("It names a folder.")


def test_a_method_that_needs_a_drafter_must_find_one() -> None:
    error = refusal(pair__drafter=None)
    assert error.field == "method.drafter"
    assert "set pair.drafter, or use method=ngram" in str(error)
    validate(config(pair__drafter=None, method__drafter="path:mine"))
    validate(config(pair__drafter=None, method=MethodConfig("ngram")))
    error = refusal(pair__drafter=None, method=MethodConfig("ngram"), compare=[MethodConfig()])
    assert error.field == "compare[0].drafter"
