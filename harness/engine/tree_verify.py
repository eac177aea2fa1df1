"""Decide which path of a draft tree stands, and which token follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.sampling import SamplingParams, draw, probabilities
from harness.engine.tree import ROOT, TreeProposal
from harness.engine.verify import Proposal, Verdict, verify_choices, verify_sampled


@dataclass(frozen=True, slots=True)
class TreeVerdict(Verdict):
    """What one verification of a tree leaves.

    Attributes:
        path: accepted nodes, from below the root downwards; there are `num_accepted`.
    """

    path: tuple[int, ...] = ()

    @property
    def nodes(self) -> Sequence[int]:
        """The path."""
        return self.path


def judge_choices(choices: Sequence[int], proposal: Proposal) -> Verdict:
    """What the target's own choices leave of a chain or a tree.

    Args:
        choices: [len(tokens) + 1] the target's likeliest token after the last committed one and after
            each drafted one.
        proposal: the drafted tokens.
    """
    if isinstance(proposal, TreeProposal):
        return follow(choices, proposal)
    return verify_choices(choices, proposal)


def judge_sampled(
    logits: Tensor, proposal: Proposal, params: SamplingParams, generator: torch.Generator
) -> Verdict:
    """`verify_sampled` for chains, `verify_tree_sampled` for trees."""
    if isinstance(proposal, TreeProposal):
        return verify_tree_sampled(logits, proposal, params, generator)
    return verify_sampled(logits, proposal, params, generator)


def verify_tree_sampled(
    logits: Tensor, proposal: TreeProposal, params: SamplingParams, generator: torch.Generator
) -> TreeVerdict:
    """Walk down a tree so that path and next token are distributed exactly as the target's.

    Children chosen with certainty: draw y from p at the node, descend where y is a child, emit it
    where it's none. Sampled children: `_try_children`.

    Args:
        logits: [nodes + 1, vocab] the target's view after the root and after each node.
        proposal: the drafted tree, its children from distributions after the same transform.
        params: with a temperature above 0.
        generator: of the draws.
    """
    probs = probabilities(logits, params)
    if proposal.probs is None:
        return follow(draw(probs, generator).tolist(), proposal)
    children = proposal.children()
    path: list[int] = []
    node = ROOT
    while True:
        target = probs[node]
        if node not in children:
            return _verdict(path, int(draw(target[None], generator)))
        draft = proposal.probs[proposal.rows[node]]
        accepted, target = _try_children(target, draft, proposal, children[node], generator)
        if accepted is None:
            return _verdict(path, int(draw(target[None], generator)))
        path.append(accepted)
        node = accepted


def follow(choices: Sequence[int], proposal: TreeProposal) -> TreeVerdict:
    """Walk down for as long as a child is what was chosen at its parent.

    Args:
        choices: [nodes + 1] the token chosen after the root and after each node.
        proposal: the drafted tree.
    """
    next_of = {(parent, proposal.tokens[n - 1]): n for n, parent in enumerate(proposal.parents, start=1)}
    path: list[int] = []
    node = ROOT
    while (child := next_of.get((node, choices[node]))) is not None:
        path.append(child)
        node = child
    return _verdict(path, choices[node])


def _verdict(path: list[int], next_token: int) -> TreeVerdict:
    return TreeVerdict(len(path), next_token, tuple(path))


def _try_children(
    target: Tensor, draft: Tensor, proposal: TreeProposal, children: list[int], generator: torch.Generator
) -> tuple[int | None, Tensor]:
    """Offer the children drawn from `draft` one after another.

    Each x ~ q is accepted with probability min(1, p(x) / q(x)). After a rejection p becomes
    max(p - q, 0) and q loses x, both renormalised: the next child was drawn from that q.

    Args:
        target: [vocab] p at the node.
        draft: [draft_vocab] q that the first child was drawn from.
        proposal: gives the children's tokens and the columns' ids.
        children: nodes in the order they were drawn.
        generator: of the acceptance.

    Returns:
        The accepted child or None, and the p that is left then.

    Source: Miao et al. 2023, "SpecInfer", algorithm 2; without replacement: Jeon et al. 2024,
        "Recursive speculative decoding", theorem 3.1.
    """
    uniform = torch.rand(len(children), generator=generator, device=target.device, dtype=torch.float64)
    for node, chance in zip(children, uniform.tolist(), strict=True):
        token = proposal.tokens[node - 1]
        column = token if proposal.vocab is None else int((proposal.vocab == token).nonzero())
        # not `chance < p / q`: q is 0 only where rounding left nothing
        if chance * float(draft[column]) < float(target[token]):
            return node, target
        target = _residual(target, draft, proposal.vocab)
        draft = _without(draft, column)
    return None, target


def _residual(target: Tensor, draft: Tensor, vocab: Tensor | None) -> Tensor:
    residual = target.clone()
    if vocab is None:
        residual -= draft
    else:
        residual[vocab] -= draft
    residual.clamp_(min=0.0)
    total = residual.sum()
    # p = q up to rounding rejects about never, and leaves nothing to redraw from: then p itself is right
    return residual / total if bool(total > 0) else target


def _without(draft: Tensor, column: int) -> Tensor:
    left = draft.clone()
    left[column] = 0.0
    return left / left.sum().clamp(min=torch.finfo(left.dtype).tiny)
