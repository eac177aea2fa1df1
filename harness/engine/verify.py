"""Decide how many drafted tokens stand, and which token follows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.sampling import SamplingParams, draw, probabilities


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens a drafter proposes for one sequence.

    Attributes:
        tokens: drafted ids, may be empty.
        probs: [len(tokens), draft_vocab] the distribution each was drawn from; None means that each
            was proposed with certainty (one-hot), as greedy and lookup drafters do.
        vocab: [draft_vocab] int64 target ids of the columns of `probs`; None where they're the same.
        num_standing: how many tokens stand whatever the target says; None leaves it to the target.
    """

    tokens: Sequence[int] = ()
    probs: Tensor | None = None
    vocab: Tensor | None = None
    num_standing: int | None = None

    @property
    def length(self) -> int:
        """Tokens that stand where all of them are accepted."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one verification leaves: `num_accepted` drafted tokens and the target's own next token."""

    num_accepted: int
    next_token: int

    @property
    def nodes(self) -> Sequence[int]:
        """Numbers of the accepted tokens, counted from 1."""
        return range(1, self.num_accepted + 1)


def verify_greedy(logits: Tensor, proposal: Proposal) -> Verdict:
    """Keep the drafted tokens that are the target's own likeliest, up to the first that isn't.

    Args:
        logits: [len(tokens) + 1, vocab]; row i is the target's view after the first i drafted tokens.
        proposal: the drafted tokens.
    """
    return verify_choices(logits.argmax(-1).tolist(), proposal)


def verify_choices(choices: Sequence[int], proposal: Proposal) -> Verdict:
    """`verify_greedy` where the target's likeliest tokens are known: [len(tokens) + 1] ids."""
    if proposal.num_standing is not None:
        return Verdict(proposal.num_standing, choices[proposal.num_standing])
    accepted = 0
    for token, choice in zip(proposal.tokens, choices, strict=False):
        if token != choice:
            break
        accepted += 1
    return Verdict(accepted, choices[accepted])


def verify_sampled(
    logits: Tensor, proposal: Proposal, params: SamplingParams, generator: torch.Generator
) -> Verdict:
    """Accept each drafted token x ~ q with probability min(1, p(x) / q(x)); mend the first rejection.

    The rejected position is redrawn from max(p - q, 0) as a whole vector; when every token stands,
    one more is drawn from p. The tokens are then distributed exactly as the target's.

    Args:
        logits: [len(tokens) + 1, vocab]; row i is the target's view after the first i drafted tokens.
        proposal: drafted tokens and the distributions they came from, after the same transform.
        params: with a temperature above 0.
        generator: for the acceptance and the redraw.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """
    probs = probabilities(logits, params)
    count = len(proposal.tokens)
    if count:
        uniform = torch.rand(count, generator=generator, device=logits.device, dtype=torch.float64).tolist()
        target, draft = _drafted_probabilities(probs, proposal)
        if proposal.num_standing is not None:
            row = proposal.num_standing
            return Verdict(row, int(draw(probs[row][None], generator)))
        for row in range(count):
            # not `u < p / q`: q may be 0 only for a token that can't have been drawn
            if uniform[row] * draft[row] >= target[row]:
                residual = _residual(probs[row], proposal, row)
                return Verdict(row, int(draw(residual[None], generator)))
    return Verdict(count, int(draw(probs[count:], generator)))


def _drafted_probabilities(probs: Tensor, proposal: Proposal) -> tuple[list[float], list[float]]:
    tokens = torch.tensor(proposal.tokens, device=probs.device)
    target = probs[: len(tokens)].gather(1, tokens[:, None])[:, 0].tolist()
    if proposal.probs is None:
        return target, [1.0] * len(tokens)
    columns = tokens
    if proposal.vocab is not None:
        columns = (proposal.vocab == tokens[:, None]).to(torch.uint8).argmax(-1)
    return target, proposal.probs.gather(1, columns[:, None])[:, 0].tolist()


def _residual(target: Tensor, proposal: Proposal, row: int) -> Tensor:
    residual = target.clone()
    if proposal.probs is None:
        residual[proposal.tokens[row]] = 0.0
    elif proposal.vocab is None:
        residual -= proposal.probs[row]
    else:
        residual[proposal.vocab] -= proposal.probs[row]
    residual.clamp_(min=0.0)
    # p = q up to rounding rejects about never, and leaves nothing to redraw from: then p itself is right
    return residual if bool(residual.any()) else target
