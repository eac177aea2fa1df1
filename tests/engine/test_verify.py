from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from engine.exact_distribution import chi_square_p
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.sampling import SamplingParams, draw, probabilities
from harness.engine.verify import Proposal, Verdict, verify_greedy, verify_sampled

NUM_TRIALS = 4000
PLAIN = SamplingParams(1.0)
Outcomes = dict[tuple[int, ...], float]


def random_rows(seed: int, num_rows: int, width: int) -> torch.Tensor:
    logits = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))
    return (1.5 * logits).softmax(-1)


def exact_outcomes(target: npt.NDArray[np.float32], draft: npt.NDArray[np.float32]) -> Outcomes:
    """Probability of every (accepted drafts..., next token).

    Drafting x and accepting it weighs q(x) min(1, p(x) / q(x)) = min(p(x), q(x)). Rejecting any weighs
    1 - sum(min(p, q)) = sum(max(p - q, 0)), so rejecting and redrawing y weighs max(p(y) - q(y), 0).
    """
    if len(draft) == 0:
        return {(token,): float(mass) for token, mass in enumerate(target[0])}
    outcomes = {(token,): float(mass) for token, mass in enumerate(np.maximum(target[0] - draft[0], 0))}
    later = exact_outcomes(target[1:], draft[1:])
    for token, mass in enumerate(np.minimum(target[0], draft[0])):
        outcomes |= {(token, *rest): float(mass) * weight for rest, weight in later.items()}
    return outcomes


def observed_outcomes(
    logits: torch.Tensor,
    params: SamplingParams,
    make_proposal: Callable[[torch.Generator], Proposal],
    num_trials: int = NUM_TRIALS,
) -> Counter[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(11)
    outcomes = Counter[tuple[int, ...]]()
    for _ in range(num_trials):
        proposal = make_proposal(generator)
        verdict = verify_sampled(logits, proposal, params, generator)
        outcomes[*proposal.tokens[: verdict.num_accepted], verdict.next_token] += 1
    return outcomes


def agreement(observed: Counter[tuple[int, ...]], exact: Outcomes) -> float:
    assert set(observed) <= set(exact)
    return chi_square_p(np.array([observed[key] for key in exact]), np.array(list(exact.values())))


def first_token_distribution(outcomes: Outcomes, width: int) -> list[float]:
    return [sum(mass for key, mass in outcomes.items() if key[0] == token) for token in range(width)]


@pytest.mark.parametrize("num_drafted", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "params", [PLAIN, SamplingParams(0.5), SamplingParams(1.5, top_k=3), SamplingParams(0.9, top_p=0.8)]
)
def test_outcomes_of_sampled_drafts_are_exact(num_drafted: int, params: SamplingParams) -> None:
    logits = random_rows(1, num_drafted + 1, 4).log()
    target, draft = probabilities(logits, params), random_rows(2, num_drafted, 4)
    exact = exact_outcomes(target.numpy(), draft.numpy())
    # the enumeration itself obeys the theorem: the first token is the target's
    np.testing.assert_allclose(first_token_distribution(exact, 4), target[0].tolist(), atol=1e-6)
    observed = observed_outcomes(
        logits, params, lambda generator: Proposal(draw(draft, generator).tolist(), draft)
    )
    assert agreement(observed, exact) > 1e-3


@pytest.mark.parametrize("tokens", [[2], [0, 3], [1, 1, 2]])
def test_outcomes_of_certain_drafts_are_exact(tokens: list[int]) -> None:
    target = random_rows(3, len(tokens) + 1, 4)
    exact = exact_outcomes(target.numpy(), np.eye(4, dtype=np.float32)[tokens])
    observed = observed_outcomes(target.log(), PLAIN, lambda _: Proposal(tokens))
    assert agreement(observed, exact) > 1e-3


@pytest.mark.parametrize("vocab", [[3, 1], [4, 0, 2], [2, 4, 1, 3, 0]])
def test_outcomes_of_a_reduced_draft_vocabulary_are_exact(vocab: list[int]) -> None:
    target, reduced = random_rows(4, 3, 5), random_rows(5, 2, len(vocab))
    draft = torch.zeros(2, 5)
    draft[:, vocab] = reduced
    ids = torch.tensor(vocab)
    observed = observed_outcomes(
        target.log(), PLAIN, lambda generator: Proposal(ids[draw(reduced, generator)].tolist(), reduced, ids)
    )
    assert agreement(observed, exact_outcomes(target.numpy(), draft.numpy())) > 1e-3


def test_the_residual_is_the_whole_vector() -> None:
    # q is above p at token 2 alone. p - q leaves (0.3, 0.1, 0): 3 to 1. Taking q(2) = 0.6 off every
    # token would leave nothing of (0.5, 0.3, 0.2), and ignoring q would redraw 5 : 3 : 2.
    logits = torch.tensor([[0.5, 0.3, 0.2], [1 / 3, 1 / 3, 1 / 3]]).log()
    proposal = Proposal([2], torch.tensor([[0.2, 0.2, 0.6]]))
    observed = observed_outcomes(logits, PLAIN, lambda _: proposal)
    rejected = np.array([observed[(token,)] for token in range(3)])
    assert chi_square_p(rejected, np.array([0.75, 0.25, 0.0])) > 1e-3
    accepted = sum(observed.values()) - rejected.sum()
    assert chi_square_p(np.array([accepted, rejected.sum()]), np.array([1 / 3, 2 / 3])) > 1e-3


def test_equal_distributions_accept_everything() -> None:
    rows = random_rows(6, 4, 6)
    observed = observed_outcomes(
        rows.log(),
        PLAIN,
        lambda generator: Proposal(draw(rows[:3], generator).tolist(), probabilities(rows[:3].log(), PLAIN)),
        num_trials=500,
    )
    assert {len(outcome) for outcome in observed} == {4}


def test_a_token_the_target_never_takes_is_always_rejected() -> None:
    logits = torch.tensor([[0.0, -float("inf"), 1.0], [0.0, 0.0, 0.0]])
    for probs in (None, torch.tensor([[0.3, 0.4, 0.3]])):
        observed = observed_outcomes(logits, PLAIN, lambda _, q=probs: Proposal([1], q), num_trials=300)
        assert set(observed) <= {(0,), (2,)}


def test_the_target_decides_alone_where_the_draft_misses_its_support() -> None:
    target, draft = torch.tensor([[0.7, 0.3, 0.0, 0.0]] * 2), torch.tensor([[0.0, 0.0, 0.5, 0.5]])
    observed = observed_outcomes(
        target.log(), PLAIN, lambda generator: Proposal(draw(draft, generator).tolist(), draft)
    )
    assert agreement(observed, {(0,): 0.7, (1,): 0.3}) > 1e-3


def one_hot_logits(choices: list[int]) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(choices), 5).float()


@pytest.mark.parametrize(
    ("choices", "tokens", "verdict"),
    [
        ([3], [], Verdict(0, 3)),
        ([3, 1], [3], Verdict(1, 1)),
        ([3, 1], [2], Verdict(0, 3)),
        ([3, 1, 4], [3, 1], Verdict(2, 4)),
        ([3, 1, 4], [3, 0], Verdict(1, 1)),
        ([3, 1, 4], [0, 1], Verdict(0, 3)),  # a right token behind a wrong one doesn't stand
    ],
)
def test_greedy_verification_by_hand(choices: list[int], tokens: list[int], verdict: Verdict) -> None:
    assert verify_greedy(one_hot_logits(choices), Proposal(tokens)) == verdict


pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6)


@given(pairs, st.integers(0, 4))
def test_greedy_verification_emits_the_targets_choices(pairs: list[tuple[int, int]], last: int) -> None:
    choices, tokens = [choice for choice, _ in pairs] + [last], [token for _, token in pairs]
    verdict = verify_greedy(one_hot_logits(choices), Proposal(tokens))
    stood = verdict.num_accepted
    assert [*tokens[:stood], verdict.next_token] == choices[: stood + 1]
    assert stood == len(tokens) or tokens[stood] != choices[stood]
