from __future__ import annotations

from typing import Any

import pytest

from harness.config.schema import BackendConfig, HarnessConfig, MethodConfig, PairConfig
from harness.config.simulated import SimulatorConfig
from harness.config.validate import validate
from harness.config.variants import variants_of
from harness.errors import ConfigError
from harness.records import Variant

PAIR = PairConfig("p", "path:t", "path:d", eagle="path:e", medusa="path:m")


def config(*methods: MethodConfig, **changes: Any) -> HarnessConfig:
    made = HarnessConfig(pair=PAIR, method=methods[0], compare=list(methods[1:]), **changes)
    validate(made)
    return made


def variants(*methods: MethodConfig) -> list[Variant]:
    return variants_of(config(*methods))[1:]


def test_each_method_takes_its_own_drafter_of_the_pair() -> None:
    found = variants(
        MethodConfig("draft_model"), MethodConfig("eagle"), MethodConfig("medusa", drafter="path:x")
    )
    assert [variant.drafter for variant in found] == ["path:d", "path:e", "path:x"]


def test_a_pair_without_a_head_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"method\.drafter.*set pair\.eagle"):
        validate(HarnessConfig(pair=PairConfig("p", "path:t", "path:d"), method=MethodConfig("eagle")))


def test_names_tell_shapes_and_rules_apart() -> None:
    found = variants(
        MethodConfig("eagle", k=4),
        MethodConfig("eagle", k=4, tree=[[0], [1], [0, 0]]),
        MethodConfig("eagle", k=4, tree={"nodes": 8, "breadth": 2}),
        MethodConfig("eagle", k=[2, 4], adaptive=True),
        MethodConfig("draft_model", k=3, lookup=2, min_confidence=0.25),
        MethodConfig("ngram", k=4, min_output_tokens=50, max_prompt_tokens=4000, max_batch=16),
    )
    assert [variant.variant_id for variant in found] == [
        "eagle-k4",
        "eagle-tree3-k2",
        "eagle-dynamic8-k4",
        "eagle-adaptive-k2",
        "eagle-adaptive-k4",
        "draft_model-lookup2-conf0.25-k3",
        "ngram-out50-prompt4000-batch16-k4",
    ]
    assert [variant.series for variant in found[:3]] == ["eagle", "eagle tree3", "eagle dynamic8"]
    assert found[1].option("tree_parents") == (0, 0, 1)
    assert (found[2].option("tree_nodes"), found[2].option("tree_breadth")) == (8, 2)
    assert found[3].option("adaptive") is True
    assert (found[5].option("lookup"), found[5].option("min_confidence")) == (2, 0.25)
    assert found[6].option("max_batch") == 16


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (MethodConfig("ngram", tree=[2]), "method.tree: must be null for ngram"),
        (MethodConfig("eagle", tree=[2], adaptive=True), "method.adaptive: must be false for a tree"),
        (MethodConfig("eagle", tree=[[0, 0]]), "method.tree"),
        (
            MethodConfig("eagle", k=[2, 9], tree={"nodes": 20, "breadth": 8}),
            "method.tree.breadth: times k - 1",
        ),
        (MethodConfig("eagle", min_output_tokens=-1), "method.min_output_tokens"),
        (MethodConfig("eagle", max_prompt_tokens=0), "method.max_prompt_tokens"),
        (MethodConfig("eagle", max_batch=0), "method.max_batch"),
        (MethodConfig("eagle", lookup=-1), "method.lookup: must not be negative"),
        (MethodConfig("ngram", lookup=2), "method.lookup: must be 0 for ngram"),
        (MethodConfig("eagle", min_confidence=1.0), "method.min_confidence: must be a probability below 1"),
        (MethodConfig("eagle", min_confidence=-0.1), "method.min_confidence: must be a probability below 1"),
        (MethodConfig("ngram", min_confidence=0.2), "method.min_confidence: must be 0 for ngram"),
        (MethodConfig("eagle", tree=[2], min_confidence=0.2), "method.min_confidence: must be 0 for a tree"),
        (
            MethodConfig("eagle", min_confidence=0.2, adaptive=True),
            "method.min_confidence: must be 0 with adaptive k",
        ),
        (MethodConfig("eagle", lookup=2, adaptive=True), "method.lookup: must be 0 with adaptive k"),
    ],
)
def test_what_cant_be_followed_is_refused(method: MethodConfig, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(method)
    assert says in str(caught.value)


@pytest.mark.parametrize("field", ["tree", "lookup", "min_confidence", "adaptive", "max_batch"])
def test_backends_that_would_ignore_them_are_refused(field: str) -> None:
    value = {"tree": [2], "lookup": 2, "min_confidence": 0.2, "adaptive": True, "max_batch": 4}[field]
    method = MethodConfig("draft_model", **{field: value})
    with pytest.raises(ConfigError, match=r"is for backend\.name=native alone"):
        config(method, backend=BackendConfig("simulator"), simulator=SimulatorConfig())


def test_typical_acceptance_is_named_and_never_lossless() -> None:
    found = variants(
        MethodConfig("draft_model", k=3),
        MethodConfig("draft_model", k=3, verification="typical"),
        MethodConfig("eagle", k=3, tree=[[0], [1]], verification="typical", epsilon=0.25, delta=0.3),
        MethodConfig("ngram", k=[2, 4], verification="typical"),
    )
    assert [(variant.variant_id, variant.lossless) for variant in found] == [
        ("draft_model-k3", True),
        ("draft_model-typical0.09-k3", False),
        ("eagle-tree2-typical0.25-0.3-k1", False),
        ("ngram-typical0.09-k2", False),
        ("ngram-typical0.09-k4", False),
    ]
    assert found[1].option("verification") == "typical"
    # the paper's choice of the second threshold
    assert (found[1].option("epsilon"), found[1].option("delta")) == (0.09, pytest.approx(0.3))
    assert (found[2].option("epsilon"), found[2].option("delta")) == (0.25, 0.3)


@pytest.mark.parametrize(
    ("method", "match"),
    [
        (MethodConfig(verification="typicl"), r"method\.verification: must be exact or typical"),
        (MethodConfig(verification="typical", epsilon=0.0), r"method\.epsilon: must lie between 0 and 1"),
        (MethodConfig(verification="typical", delta=1.0), r"method\.delta: must lie between 0 and 1"),
        (
            MethodConfig("synthetic", acceptance=0.5, verification="typical"),
            r"method\.verification: must be exact for synthetic",
        ),
    ],
)
def test_a_verification_out_of_range_is_refused(method: MethodConfig, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        config(method)


@pytest.mark.parametrize("backend", ["transformers", "simulator"])
def test_other_backends_refuse_typical_acceptance(backend: str) -> None:
    simulator = SimulatorConfig() if backend == "simulator" else None
    with pytest.raises(ConfigError, match=r"method\.verification: is for backend\.name=native alone"):
        config(MethodConfig(verification="typical"), backend=BackendConfig(backend), simulator=simulator)
