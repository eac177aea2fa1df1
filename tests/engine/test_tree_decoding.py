"""Trees, EAGLE and Medusa in the decode loop: nothing changes but how many tokens a step gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch
from engine.exact_distribution import chi_square_p, count_outcomes, joint_distribution
from engine.random_heads import random_eagle, random_medusa
from engine.random_models import all_logits, greedy_continuation, random_transformer
from torch import Tensor

from harness.engine import tree_placement
from harness.engine.cache import KVCache
from harness.engine.drafters.base import Drafter, Turn
from harness.engine.drafters.eagle import EagleDrafter
from harness.engine.drafters.medusa import MedusaDrafter
from harness.engine.drafters.tree_model import TreeDraftModel
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.pace import AdaptivePace, PacePlan, PaceRules, StepCosts
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.tree import parents_of
from harness.engine.tree_growth import DynamicTree, StaticTree, TreePlan, chain
from harness.engine.verify import Proposal
from harness.records import Decoded

VOCAB_SIZE, CAPACITY, BATCH = 12, 80, 8
GREEDY = SamplingParams()
TARGET = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2)
CLOSE = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2, noise=0.2)
WIDE = StaticTree([0, 0, 0, 1, 1, 2, 4, 4, 5])
GROWING = DynamicTree(7, depth=4, breadth=3)
PROMPTS = [[5], [3, 3], [1, 2, 3, 4, 5, 6, 7], [0, 9, 0, 9, 11, 0, 9] * 4, [2, 8], [7, 7, 7], [1], [4, 0, 4]]
LIMITS = [30, 11, 25, 1, 40, 18, 2, 33]

Make = Callable[[Transformer, TreePlan, bool], Drafter]


def tree_model(target: Transformer, plan: TreePlan, sample: bool) -> Drafter:
    model = CLOSE if target is TARGET else SMALL_DRAFTER
    return TreeDraftModel(
        model, cache=model.new_cache(capacity=CAPACITY, batch=BATCH), plan=plan, sample=sample
    )


def eagle(target: Transformer, plan: TreePlan, sample: bool) -> Drafter:
    head = random_eagle(target)
    return EagleDrafter(
        head, cache=head.model.new_cache(capacity=CAPACITY, batch=BATCH), plan=plan, sample=sample
    )


def medusa(target: Transformer, plan: TreePlan, sample: bool) -> Drafter:
    return MedusaDrafter(random_medusa(target, num_heads=4), plan, sample=sample)


def decoder(
    drafter: Drafter | None, *, k: int = 4, target: Transformer = TARGET, pace: PacePlan | None = None
) -> Decoder:
    kept = target.new_cache(capacity=CAPACITY, batch=BATCH)
    return Decoder(target, cache=kept, drafter=drafter, k=k, pace=pace)


def decode_all(chosen: Decoder, sampling: SamplingParams = GREEDY) -> list[Decoded]:
    requests = [Request(prompt, limit, 7) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)]
    return chosen.decode_batch(requests, sampling=sampling)


@cache
def expected() -> list[list[int]]:
    return [greedy_continuation(TARGET, prompt, limit) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)]


@pytest.mark.parametrize("plan", [chain(3), WIDE, GROWING], ids=["chain", "static", "dynamic"])
@pytest.mark.parametrize("make", [tree_model, eagle, medusa])
def test_greedy_output_is_the_autoregressive_one(make: Make, plan: TreePlan) -> None:
    chosen = decoder(make(TARGET, plan, False))
    together = decode_all(chosen)
    assert [decoded.tokens for decoded in together] == expected()
    accepted = 0
    for decoded in together:
        steps = decoded.steps
        assert steps is not None
        accepted += sum(steps.accepted)
        for proposed, stood in zip(steps.proposed, steps.accepted, strict=True):
            assert 0 <= stood <= proposed <= 4
    assert accepted > 0
    for place in (2, 4):
        alone = chosen.decode(PROMPTS[place], sampling=GREEDY, max_new_tokens=LIMITS[place])
        assert alone.tokens == expected()[place]


def test_a_tree_gives_more_than_its_own_chain() -> None:
    forwards = {}
    for name, plan in (("chain", chain(3)), ("tree", StaticTree([0, 0, 0, 1, 1, 2, 4]))):
        decoded = decode_all(decoder(tree_model(TARGET, plan, False), k=3))
        forwards[name] = sum(one.num_target_forwards for one in decoded)
    assert forwards["tree"] < forwards["chain"]


def test_the_target_accepts_its_own_trees_to_the_end() -> None:
    """A row kept from a rejected branch, or a wrong position, would lead one of the two astray."""
    own = TreeDraftModel(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), plan=WIDE)
    decoded = decoder(own, k=3).decode([1, 2, 3], sampling=GREEDY, max_new_tokens=61)
    assert decoded.steps is not None
    assert decoded.steps.accepted == decoded.steps.proposed == [3] * 15


class CheckedEagle:
    """Compares what an EAGLE drafter proposes with its head run anew over the whole context."""

    def __init__(self, plan: TreePlan) -> None:
        self._head = random_eagle(TARGET)
        kept = self._head.model.new_cache(capacity=CAPACITY, batch=BATCH)
        self._drafter = EagleDrafter(self._head, cache=kept, plan=plan)
        self.begin, self.read_hidden = self._drafter.begin, self._drafter.read_hidden
        self.settle, self.keep = self._drafter.settle, self._drafter.keep
        self.checked = 0

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        proposals = self._drafter.propose(turns, sampling=sampling)
        for turn, proposal in zip(turns, proposals, strict=True):
            parents = parents_of(proposal)
            for node in range(len(proposal.tokens)):
                path = path_tokens(parents, proposal.tokens, parents[node])
                ranked = self._logits(list(turn.tokens), path).topk(3).indices.tolist()
                assert proposal.tokens[node] in ranked
                self.checked += 1
        return proposals

    def _logits(self, tokens: list[int], path: list[int]) -> Tensor:
        hidden = TARGET.forward(torch.tensor([tokens[:-1]]), TARGET.new_cache(capacity=CAPACITY))[0]
        pairs = [*tokens[1:], *path]
        while True:
            head = self._head
            out = head.run(
                torch.tensor([pairs[: len(hidden)]]), hidden[None], head.model.new_cache(capacity=CAPACITY)
            )[0]
            if len(hidden) == len(pairs):
                return head.model.head(out[-1])
            hidden = torch.cat((hidden, out[-1:]))


def path_tokens(parents: Sequence[int], tokens: Sequence[int], node: int) -> list[int]:
    found: list[int] = []
    while node:
        found.append(tokens[node - 1])
        node = parents[node - 1]
    return found[::-1]


@pytest.mark.parametrize("plan", [chain(3), StaticTree([0, 0, 0, 1, 1, 2])])
def test_eagle_drafts_from_the_targets_hidden_states(plan: TreePlan) -> None:
    checked = CheckedEagle(plan)
    requests = [Request(PROMPTS[place], 14) for place in (1, 2, 0)]
    decoded = decoder(checked, k=3).decode_batch(requests, sampling=GREEDY)
    assert [one.tokens for one in decoded] == [
        greedy_continuation(TARGET, PROMPTS[place], 14) for place in (1, 2, 0)
    ]
    assert checked.checked > 50


def test_medusa_reads_the_hidden_state_before_the_last_token() -> None:
    heads, seen = random_medusa(TARGET, num_heads=2), []
    drafter = MedusaDrafter(heads, chain(2))
    propose = drafter.propose

    def checked(turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        proposals = propose(turns, sampling=sampling)
        for turn, proposal in zip(turns, proposals, strict=True):
            tokens = torch.tensor([list(turn.tokens)[:-1]])
            hidden = TARGET.forward(tokens, TARGET.new_cache(capacity=CAPACITY))[0, -1:]
            likeliest = heads.logits(hidden, 2).argmax(-1)[:, 0].tolist()
            assert list(proposal.tokens) == likeliest[: turn.limit]
            seen.append(turn)
        return proposals

    drafter.propose = checked  # type: ignore[method-assign]
    decode_all(decoder(drafter, k=2))
    assert len(seen) > 20


SMALL = random_transformer(0)
SMALL_DRAFTER = random_transformer(1)
PROMPT = [1, 2, 0, 1, 2]
NUM_TOKENS, NUM_SEEDS = 4, 640


@cache
def exact(params: SamplingParams) -> Tensor:
    return torch.from_numpy(joint_distribution(SMALL, PROMPT, params, NUM_TOKENS))


def agreement(drafter: Drafter, k: int, params: SamplingParams) -> float:
    """The smaller p-value of the first three tokens together and the last two, decoded eight at a time."""
    chosen = decoder(drafter, k=k, target=SMALL)
    outputs = []
    for first in range(0, NUM_SEEDS, BATCH):
        requests = [Request(PROMPT, NUM_TOKENS, first + place) for place in range(BATCH)]
        outputs += [tuple(one.tokens) for one in chosen.decode_batch(requests, sampling=params)]
    p_values = []
    for kept in ((0, 1, 2), (2, 3)):
        marginal = exact(params).sum([axis for axis in range(NUM_TOKENS) if axis not in kept]).numpy()
        counts = count_outcomes((tuple(output[i] for i in kept) for output in outputs), marginal.shape)
        p_values.append(chi_square_p(counts, marginal))
    return min(p_values)


SMALL_TREE = StaticTree([0, 0, 0, 1, 1, 2, 4])


@pytest.mark.parametrize(
    ("make", "plan", "sample", "params"),
    [
        (tree_model, SMALL_TREE, True, SamplingParams(1.0)),
        (tree_model, SMALL_TREE, False, SamplingParams(1.5)),
        (tree_model, DynamicTree(6, depth=3, breadth=2), False, SamplingParams(0.7)),
        (eagle, DynamicTree(6, depth=3, breadth=2), True, SamplingParams(1.0)),
        (eagle, chain(2), True, SamplingParams(0.7)),
        (medusa, SMALL_TREE, True, SamplingParams(1.5)),
        (medusa, SMALL_TREE, False, SamplingParams(0.7)),
    ],
)
def test_output_has_the_targets_distribution(
    make: Make, plan: TreePlan, sample: bool, params: SamplingParams
) -> None:
    assert agreement(make(SMALL, plan, sample), plan.depth, params) > 1e-3


def siblings_visible(parents: Sequence[int], *, device: object = "cpu") -> Tensor:
    """Each node sees all nodes with smaller numbers."""
    size = len(parents) + 1
    return torch.ones(size, size, dtype=torch.bool).tril()


def root_hidden(parents: Sequence[int], *, device: object = "cpu") -> Tensor:
    """Ancestors without the root, as `if node > 0` leaves it out."""
    mask = REAL_MASK(parents)
    mask[1:, 0] = False
    return mask


def by_index(parents: Sequence[int]) -> list[int]:
    """Positions by number instead of by depth."""
    return list(range(len(parents) + 1))


def rejected_rows_kept(self: KVCache, row: int, nodes: Sequence[int]) -> None:
    """The accepted path's rows stay where they are, and those of other branches count as committed."""


REAL_MASK = tree_placement.ancestor_mask


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (tree_placement, "ancestor_mask", siblings_visible),
        (tree_placement, "ancestor_mask", root_hidden),
        (tree_placement, "depths", by_index),
        (KVCache, "gather", rejected_rows_kept),
    ],
)
def test_a_wrong_tree_is_seen(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, wrong: Callable[..., object]
) -> None:
    drafter = tree_model(TARGET, WIDE, False)
    assert [one.tokens for one in decode_all(decoder(drafter))] == expected()
    monkeypatch.setattr(module, name, wrong)
    assert [one.tokens for one in decode_all(decoder(drafter))] != expected()


def test_a_tree_is_verified_as_if_each_path_were_alone() -> None:
    kept = TARGET.new_cache(capacity=CAPACITY)
    prompt, parents = [3, 1, 4, 1, 5], [0, 0, 1, 1, 2, 4]
    tokens = [9, 2, 6, 5, 3, 5]
    TARGET.prefill(torch.tensor([prompt]), kept)
    placement = tree_placement.place_trees(kept, [parents])
    logits = TARGET.head(TARGET.forward(torch.tensor([[8, *tokens]]), kept, placement))[0]
    for node in range(7):
        alone = [*prompt, 8, *path_tokens(parents, tokens, node)]
        torch.testing.assert_close(logits[node], all_logits(TARGET, torch.tensor([alone]))[0, -1])


def test_branches_say_what_the_mask_says() -> None:
    kept = TARGET.new_cache(capacity=CAPACITY, batch=3)
    for lengths in ([5, 5, 5], [2, 7, 4]):
        kept.lengths = lengths
        slots = tree_placement.NodeSlots(kept)
        trees = [[-1, 0, 0, 1, 2, 2], [-1, 0, 1, 2], [-1, 0, 0, 0, 3]]
        placements = [
            tree_placement.place_trees(kept, [tree[1:] for tree in trees]),
            slots.place(trees, [[1, 2], [1], [1, 2, 3]]),
            slots.place(trees, [[3, 4, 5], [2], [4]]),
        ]
        for placement in placements:
            assert placement.mask is not None
            assert placement.branches is not None
            for row, length in enumerate(lengths):
                for token, bits in enumerate(placement.branches[row].tolist()):
                    seen = placement.mask[row, token].nonzero()[:, 0].tolist()
                    assert seen[:length] == list(range(length))
                    assert seen[length:] == [length + i for i in range(64) if bits >> i & 1]


def test_an_adaptive_pace_changes_speed_not_output(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = StepCosts([0.3 * k for k in range(5)], [1.0 + 0.1 * k for k in range(5)])
    made: list[AdaptivePace] = []
    real = AdaptivePace.__init__
    monkeypatch.setattr(AdaptivePace, "__init__", lambda self, *a: made.append(self) or real(self, *a))
    drafter = tree_model(TARGET, chain(4), False)
    decoded = decode_all(decoder(drafter, pace=PacePlan(4, costs)))
    assert [one.tokens for one in decoded] == expected()
    assert len(made) == len(PROMPTS)
    lengths = {proposed for one in decoded if one.steps for proposed in one.steps.proposed}
    assert len(lengths) > 2
    hopeless = decode_all(decoder(eagle(TARGET, chain(4), False), pace=PacePlan(4, costs)))
    assert [one.tokens for one in hopeless] == expected()
    longest = max((one.steps for one in hopeless if one.steps), key=lambda steps: len(steps.proposed))
    assert 0 in longest.proposed


@pytest.mark.parametrize(
    ("rules", "drafted"),
    [
        (PaceRules(min_output_tokens=20), [limit >= 20 for limit in LIMITS]),
        (PaceRules(max_prompt_tokens=3), [len(prompt) <= 3 for prompt in PROMPTS]),
    ],
)
def test_rules_keep_sequences_from_being_drafted_for(rules: PaceRules, drafted: list[bool]) -> None:
    decoded = decode_all(decoder(eagle(TARGET, chain(3), False), pace=PacePlan(3, rules=rules)))
    assert [one.tokens for one in decoded] == expected()
    for one, limit, allowed in zip(decoded, LIMITS, drafted, strict=True):
        assert one.steps is not None
        assert any(one.steps.proposed) == (allowed and limit > 2)


def test_a_large_batch_isnt_drafted_for() -> None:
    rules = PaceRules(max_batch=4)
    decoded = decode_all(decoder(medusa(TARGET, chain(2), False), k=2, pace=PacePlan(2, rules=rules)))
    assert [one.tokens for one in decoded] == expected()
    longest = max((one.steps for one in decoded if one.steps), key=lambda steps: len(steps.proposed))
    # eight sequences at first; drafting begins once four are left
    first = next(step for step, proposed in enumerate(longest.proposed) if proposed)
    assert first >= sorted(LIMITS)[3] - 1
