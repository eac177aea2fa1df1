from __future__ import annotations

import pytest

from harness.config.schema import HarnessConfig, MethodConfig, PairConfig
from harness.config.validate import validate
from harness.config.variants import variants_of
from harness.errors import ConfigError
from harness.records import Variant


def config(method: MethodConfig, *compare: MethodConfig) -> HarnessConfig:
    return HarnessConfig(pair=PairConfig("p", "path:t", "path:d"), method=method, compare=list(compare))


def ids(found: list[Variant]) -> list[str]:
    return [variant.variant_id for variant in found]


def test_the_baseline_comes_first_and_k_in_the_order_given() -> None:
    found = variants_of(config(MethodConfig("draft_model", k=[5, 1, 3])))
    assert ids(found) == ["autoregressive", "draft_model-k5", "draft_model-k1", "draft_model-k3"]
    assert [variant.is_baseline for variant in found] == [True, False, False, False]
    assert [variant.k for variant in found] == [0, 5, 1, 3]


def test_one_k_is_one_variant() -> None:
    assert ids(variants_of(config(MethodConfig("ngram", k=4)))) == ["autoregressive", "ngram-k4"]


def test_the_baseline_alone_is_measured_once() -> None:
    assert ids(variants_of(config(MethodConfig("autoregressive")))) == ["autoregressive"]
    assert ids(variants_of(config(MethodConfig("autoregressive"), MethodConfig("ngram", k=2)))) == [
        "autoregressive",
        "ngram-k2",
    ]


def test_compared_methods_follow_with_their_own_options() -> None:
    method = MethodConfig("draft_model", k=2, draft_sampling="greedy", draft_vocab=False)
    other = MethodConfig("ngram", k=[2, 4], min_ngram=2, max_ngram=5)
    _, draft, *copies = variants_of(config(method, other))
    assert draft == Variant(
        "draft_model", 2, "path:d", (("draft_sampling", "greedy"), ("draft_vocab", False))
    )
    assert copies == [Variant("ngram", k, None, (("min_ngram", 2), ("max_ngram", 5))) for k in (2, 4)]


def test_a_method_can_bring_its_own_drafter() -> None:
    _, own, pairs = variants_of(
        config(MethodConfig("draft_model", k=1, drafter="path:own"), MethodConfig("draft_model", k=2))
    )
    assert (own.drafter, pairs.drafter) == ("path:own", "path:d")


def test_an_optional_method_needs_something_to_draft_with() -> None:
    method, head = MethodConfig("ngram", k=2), MethodConfig("eagle", k=3, optional=True)
    cell = config(method, head, MethodConfig("ngram", k=4))
    assert ids(variants_of(cell)) == ["autoregressive", "ngram-k2", "ngram-k4"]
    validate(cell)
    cell.pair.eagle = "path:e"
    assert ids(variants_of(cell)) == ["autoregressive", "ngram-k2", "eagle-k3", "ngram-k4"]
    head.tree, cell.backend.name = [[0], [1]], "vllm"
    assert "eagle" not in {variant.method for variant in variants_of(cell)}
    head.tree, cell.backend.name = None, "transformers"
    assert "eagle" not in {variant.method for variant in variants_of(cell)}
    cell.backend.name = "native"
    cell.pair.eagle, head.optional = None, False
    with pytest.raises(ConfigError, match=r"compare\[0\]\.drafter: must name what eagle drafts with"):
        validate(cell)


def test_the_same_variant_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compare: must not repeat a variant, got 'ngram-k4'"):
        variants_of(config(MethodConfig("ngram", k=[2, 4]), MethodConfig("ngram", k=4, max_ngram=5)))
