from __future__ import annotations

import itertools

import numpy as np
import pytest

from harness.engine.pace import (
    MEMORY,
    PRIOR_ACCEPTED,
    PRIOR_REJECTED,
    PROBE_EVERY,
    AdaptivePace,
    FixedPace,
    PacePlan,
    PaceRules,
    StepCosts,
)
from harness.metrics.theory import expected_emitted

CHEAP = StepCosts([0.05 * k for k in range(9)], [1.0 + 0.02 * k for k in range(9)])
DEAR = StepCosts([0.9 * k for k in range(9)], [1.0 + 0.3 * k for k in range(9)])


@pytest.mark.parametrize("costs", [CHEAP, DEAR])
@pytest.mark.parametrize("acceptance", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
def test_the_best_length_maximises_expected_tokens_per_second(costs: StepCosts, acceptance: float) -> None:
    for limit in (0, 3, 8, 20):
        rates = [
            float(expected_emitted(acceptance, k)) / (costs.draft_s[k] + costs.verify_s[k])
            for k in range(min(limit, 8) + 1)
        ]
        assert costs.best_length(acceptance, limit=limit) == int(np.argmax(rates))


def test_nothing_is_drafted_where_it_costs_more_than_it_gives() -> None:
    assert DEAR.best_length(0.5, limit=8) == 0
    assert CHEAP.best_length(0.02, limit=8) == 0
    assert CHEAP.best_length(0.99, limit=8) == 8


def test_the_pace_follows_acceptance_both_ways() -> None:
    pace = AdaptivePace(8, CHEAP)
    for _ in range(60):
        pace.observe(4, 4)
    assert pace.acceptance > 0.95
    assert pace.length() == 8
    for _ in range(120):
        pace.observe(pace.length(), 0)
    assert pace.acceptance < 0.1
    assert pace.length() <= 1


def test_the_estimate_is_a_decayed_mean_of_judged_drafts() -> None:
    pace, accepted, rejected = AdaptivePace(5, CHEAP), PRIOR_ACCEPTED, PRIOR_REJECTED
    for proposed, stood in ((5, 2), (3, 3), (0, 0), (4, 0), (1, 1)):
        pace.observe(proposed, stood)
        if proposed:
            accepted = MEMORY * accepted + stood
            rejected = MEMORY * rejected + (1 if stood < proposed else 0)
    assert pace.acceptance == pytest.approx(accepted / (accepted + rejected))


def test_an_idle_pace_probes_now_and_then() -> None:
    pace, lengths = AdaptivePace(5, DEAR), list[int]()
    for _ in range(3 * (PROBE_EVERY + 1)):
        lengths.append(pace.length())
        pace.observe(lengths[-1], 0)
    assert set(lengths) == {0, 1}
    places = [step for step, length in enumerate(lengths) if length]
    assert {after - before for before, after in itertools.pairwise(places)} == {PROBE_EVERY + 1}


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (PaceRules(), True),
        (PaceRules(min_output_tokens=50), True),
        (PaceRules(min_output_tokens=51), False),
        (PaceRules(max_prompt_tokens=100), True),
        (PaceRules(max_prompt_tokens=99), False),
        (PaceRules(min_output_tokens=60, max_prompt_tokens=200), False),
    ],
)
def test_rules_switch_a_sequence_off(rules: PaceRules, allowed: bool) -> None:
    assert rules.allows_sequence(prompt_tokens=100, max_new_tokens=50) == allowed
    pace = PacePlan(4, rules=rules).start(prompt_tokens=100, max_new_tokens=50)
    assert pace.length() == (4 if allowed else 0)


def test_rules_switch_a_large_batch_off() -> None:
    assert PaceRules().allows_batch(1000)
    assert PaceRules(max_batch=16).allows_batch(16)
    assert not PaceRules(max_batch=16).allows_batch(17)


def test_a_plan_is_fixed_or_adaptive() -> None:
    assert PacePlan(3).start(prompt_tokens=1, max_new_tokens=9) == FixedPace(3)
    assert isinstance(PacePlan(3, CHEAP).start(prompt_tokens=1, max_new_tokens=9), AdaptivePace)
