"""Temperature 0: where an output leaves the baseline's, is it a numerical tie or a defect?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.metrics.rounding import is_tie, roundings_apart
from harness.records import Scored, Variant
from harness.results.agreement import first_divergence
from harness.runner.outputs import Outputs, Place
from harness.runner.scoring import BudgetedScorer
from harness.verdicts import Divergence, LosslessRow, LosslessVerdict

Tokens = tuple[int, ...]
Output = tuple[str, Tokens]
"""prompt_id and the baseline's tokens: what is scored once for all variants."""

TEST = "greedy"
_WORST_FIRST = (
    LosslessVerdict.DEFECT,
    LosslessVerdict.LOSSY,
    LosslessVerdict.UNKNOWN,
    LosslessVerdict.TIE,
    LosslessVerdict.EQUAL,
)


@dataclass(frozen=True, slots=True)
class Parting:
    """The first place where an output isn't the baseline's; a token is None where that output had ended."""

    output: Output
    after_tokens: int
    token: int | None
    other_token: int | None


def check_greedy(
    variants: Sequence[Variant], baseline_id: str, outputs: Outputs, scorer: BudgetedScorer
) -> list[LosslessRow]:
    """Compare every variant's outputs with the baseline's, and the baseline's with the target itself.

    The target runs each output of the baseline in one forward, those that some variant left first. A token
    whose logit is nearly the likeliest one's is a tie (`harness.metrics.rounding`). The baseline's own
    tokens are the control: they were decoded one at a time, so they show how often another number of tokens
    per forward changes the likeliest one. Variants that say they aren't lossless come last, and whatever of
    theirs isn't a tie is `lossy`.

    Returns:
        One row per variant that has outputs, the control among them.
    """
    baseline = outputs.of(baseline_id)
    partings = {
        variant.variant_id: list(_partings(outputs.of(variant.variant_id), baseline))
        for variant in sorted(variants, key=lambda variant: not variant.lossless)
        if not variant.is_baseline
    }
    scores = _Scores(partings.values(), baseline, scorer)
    rows = []
    for variant in variants:
        if variant.is_baseline:
            rows.append(_control_row(variant, scores, scorer))
            continue
        own = outputs.of(variant.variant_id)
        compared = {place: tokens for place, tokens in own.items() if place in baseline}
        found = [_by_design(scores.judged(parting), variant) for parting in partings[variant.variant_id]]
        rows.append(_row(variant, compared, found, scorer.reason))
    return rows


class _Scores:
    """What the target makes of the baseline's outputs, asked once for each."""

    def __init__(
        self, partings: Iterable[list[Parting]], baseline: Mapping[Place, Tokens], scorer: BudgetedScorer
    ) -> None:
        wanted: dict[Output, list[tuple[int, int]]] = defaultdict(list)
        for parting in (parting for found in partings for parting in found):
            alternatives = wanted[parting.output]
            alternative = (parting.after_tokens, parting.other_token)
            if parting.other_token is not None and alternative not in alternatives:
                alternatives.append((parting.after_tokens, parting.other_token))
        for (prompt_id, _, _), tokens in baseline.items():
            wanted.setdefault((prompt_id, tokens), [])
        self._wanted = wanted
        self.scored: dict[Output, Scored] = {}
        for output, alternatives in wanted.items():
            if scorer.is_spent:
                break
            found = scorer.score(*output, alternatives=alternatives)
            if found is not None:
                self.scored[output] = found

    def judged(self, parting: Parting) -> Divergence:
        """A tie, a defect, or unknown."""
        (prompt_id, _), after = parting.output, parting.after_tokens
        unknown = LosslessVerdict.UNKNOWN.value
        found = Divergence(prompt_id, after, parting.token, parting.other_token, None, unknown)
        scored = self.scored.get(parting.output)
        if parting.token is None or parting.other_token is None:
            # one of the outputs ended where the other went on
            found.verdict = LosslessVerdict.DEFECT.value
        elif scored is not None:
            index = self._wanted[parting.output].index((after, parting.other_token))
            _judge(found, scored, scored.alternative_logits[index])
        return found


def _partings(own: Mapping[Place, Tokens], baseline: Mapping[Place, Tokens]) -> Iterable[Parting]:
    """One per output that differs, equal ones of several repeats once."""
    found: dict[Parting, None] = {}
    for place, tokens in own.items():
        reference = baseline.get(place)
        if reference is None or reference == tokens:
            continue
        after = first_divergence(tokens, reference)
        assert after is not None
        pair = (sequence[after] if after < len(sequence) else None for sequence in (reference, tokens))
        found[Parting((place[0], reference), after, *pair)] = None
    return found


def _row(
    variant: Variant, compared: Mapping[Place, Tokens], found: list[Divergence], reason: str | None
) -> LosslessRow:
    prompts: dict[str, set[str]] = {place[0]: set() for place in compared}
    for divergence in found:
        prompts[divergence.prompt_id].add(divergence.verdict)
    kinds = [_worst(verdicts) for verdicts in prompts.values()]
    verdict = _worst(kinds) if kinds else LosslessVerdict.UNKNOWN
    is_unknown = verdict == LosslessVerdict.UNKNOWN
    return LosslessRow(
        variant.variant_id,
        TEST,
        verdict.value,
        reason=((reason if found else None) or "no output to compare") if is_unknown else None,
        num_prompts=len(prompts),
        num_tokens=sum(map(len, compared.values())),
        num_equal=kinds.count(LosslessVerdict.EQUAL),
        num_ties=kinds.count(LosslessVerdict.TIE),
        num_defects=kinds.count(LosslessVerdict.DEFECT),
        largest_roundings=max((d.roundings for d in found if d.roundings is not None), default=None),
        divergences=found,
    )


def _by_design(found: Divergence, variant: Variant) -> Divergence:
    """A parting as the variant's own claim has it: what isn't lossless has no defects."""
    if not variant.lossless and found.verdict != LosslessVerdict.TIE:
        found.verdict = LosslessVerdict.LOSSY.value
    return found


def _control_row(variant: Variant, scores: _Scores, scorer: BudgetedScorer) -> LosslessRow:
    flips = {output: _widest_flip(output, scored) for output, scored in scores.scored.items()}
    compared = {(prompt_id, place, 0): tokens for place, (prompt_id, tokens) in enumerate(flips)}
    row = _row(variant, compared, [flip for flip in flips.values() if flip is not None], scorer.reason)
    row.seconds = scorer.seconds
    if not compared:
        row.reason = scorer.reason or "no output to compare"
    return row


def _widest_flip(output: Output, scored: Scored) -> Divergence | None:
    """Where the target, asked in one forward, would most clearly have chosen another token."""
    prompt_id, tokens = output
    flips = []
    for place, (token, best) in enumerate(zip(tokens, scored.best_tokens, strict=True)):
        if token != best:
            flip = Divergence(prompt_id, place, token, best, None, LosslessVerdict.UNKNOWN.value)
            flips.append(_judge(flip, scored, scored.logits[place]))
    return max(flips, key=lambda flip: flip.roundings or 0.0, default=None)


def _judge(found: Divergence, scored: Scored, logit: float) -> Divergence:
    """Fill in how far a logit lies below the likeliest one's, and what that makes of the divergence."""
    bits = scored.significant_bits
    roundings = roundings_apart(scored.best_logits[found.after_tokens], logit, significant_bits=bits)
    tie = is_tie(roundings, significant_bits=bits)
    found.roundings = roundings
    found.verdict = (LosslessVerdict.TIE if tie else LosslessVerdict.DEFECT).value
    return found


def _worst(verdicts: Iterable[str]) -> LosslessVerdict:
    found = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in found), LosslessVerdict.EQUAL)
