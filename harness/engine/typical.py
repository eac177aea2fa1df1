"""Typical acceptance: keep the drafted tokens that the target finds plausible. Not lossless."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.sampling import SamplingParams, probabilities
from harness.engine.tree import ROOT, TreeProposal, parents_of, path_to
from harness.engine.tree_verify import TreeVerdict
from harness.engine.verify import Proposal, Verdict


@dataclass(frozen=True, slots=True)
class TypicalAcceptance:
    """Which tokens are plausible: likelier than a bar that is lower where the target is undecided.

    Attributes:
        epsilon: the highest the bar gets; between 0 and 1.
        delta: the bar over exp(-entropy); between 0 and 1, so that the likeliest token always clears it, as
            no distribution's largest probability is below exp(-entropy).

    Source: Cai et al. 2024, "Medusa", section 2.3.1.
    """

    epsilon: float
    delta: float

    def bars(self, probs: Tensor) -> Tensor:
        """The probability that a token has to exceed, min(epsilon, delta exp(-H(p))).

        Args:
            probs: [rows, vocab]; rows sum to 1.

        Returns:
            [rows].
        """
        entropy = torch.special.entr(probs).sum(-1)
        return (self.delta * torch.exp(-entropy)).clamp(max=self.epsilon)


def judge_typical(
    logits: Tensor, proposal: Proposal, params: SamplingParams, rule: TypicalAcceptance
) -> Verdict:
    """Keep the longest path of plausible tokens; the target's likeliest token follows it.

    Of several longest paths of a tree the target's likeliest one stands. Nothing is drawn: the text isn't
    distributed as the target's, and what is drafted decides which plausible text comes out.

    Args:
        logits: [len(tokens) + 1, vocab] the target's view after the last committed token and after each
            drafted one.
        proposal: a chain or a tree.
        params: with a temperature above 0; at 0 only the likeliest token is plausible, so that greedy
            verification is the same.
        rule: which tokens are plausible.

    Source: Cai et al. 2024, "Medusa", section 2.3.1.
    """
    probs = probabilities(logits, params)
    end = _longest_path_end(probs, proposal, rule)
    next_token = int(probs[end].argmax())
    if isinstance(proposal, TreeProposal):
        path = tuple(path_to(proposal.parents, end))
        return TreeVerdict(len(path), next_token, path)
    return Verdict(end, next_token)


def _longest_path_end(probs: Tensor, proposal: Proposal, rule: TypicalAcceptance) -> int:
    """The last node of the longest path whose every token is plausible; the root where there is none."""
    if not proposal.tokens:
        return ROOT
    parents = list(parents_of(proposal))
    tokens = torch.tensor(proposal.tokens, device=probs.device)
    drafted = probs[parents].gather(1, tokens[:, None])[:, 0]
    plausible = (drafted > rule.bars(probs)[parents]).tolist()
    # depth first, then the probability of the path under the target
    reached = {ROOT: (0, 0.0)}
    for node, (parent, stands, log_prob) in enumerate(
        zip(parents, plausible, drafted.log().tolist(), strict=True), start=1
    ):
        if stands and parent in reached:
            depth, total = reached[parent]
            reached[node] = (depth + 1, total + log_prob)
    return max(reached, key=lambda node: reached[node])
