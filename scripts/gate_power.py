#!/usr/bin/env python
"""How often does the regression gate cry wolf, and how often does it catch what it should?

Compares pairs of made-up runs whose truth is known: nothing changed, one variant is slower, acceptance is
lower. Times get a log-normal noise per trial on top of the steps' own. Greedy decoding accepts the same in
both runs, as a deterministic decoder does; at a temperature the two runs draw anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gate"))

from gate_runs import gate, made_up
from synthetic_results import Truth
from tqdm import tqdm

from harness.gate.comparison import compare
from harness.gate.verdict import Verdict


@dataclass(frozen=True)
class Scene:
    """One truth about HEAD, at one temperature."""

    name: str
    head: Truth
    temperature: float = 0.0


SCENES = (
    Scene("greedy, no change", Truth(luck=1)),
    Scene("greedy, one variant 10% slower", Truth(luck=1, slowdown={"draft_model-k3": 1.10})),
    Scene("greedy, one variant 5% slower", Truth(luck=1, slowdown={"draft_model-k3": 1.05})),
    Scene("greedy, alpha lower by 0.03", Truth(luck=1, alpha_shift=-0.03)),
    Scene("sampled, no change", Truth(), temperature=0.7),
    Scene("sampled, one variant 10% slower", Truth(slowdown={"draft_model-k3": 1.10}), temperature=0.7),
    Scene("sampled, alpha lower by 0.03", Truth(alpha_shift=-0.03), temperature=0.7),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=30, help="of each scene (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=40, help="of each run (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="of each prompt (default: %(default)s)")
    parser.add_argument("--noise", type=float, default=0.03, help="of a trial's time (default: %(default)s)")
    parser.add_argument("--max-time-s", type=float, default=110.0, help="stop after (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="side by side (default: %(default)s)")
    options = parser.parse_args()
    print(
        f"{options.prompts} prompts, {options.repeats} repeats, noise {options.noise:.0%}, gate of 2 variants"
    )
    print(f"{'scene':34s} {'runs':>5s} " + " ".join(f"{verdict:>12s}" for verdict in _SHOWN))
    counts: dict[str, Counter[Verdict]] = {scene.name: Counter() for scene in SCENES}
    deadline = time.monotonic() + options.max_time_s
    with ProcessPoolExecutor(options.processes) as pool:
        verdicts = pool.map(partial(_verdicts, options=options), range(options.comparisons))
        for found in tqdm(verdicts, total=options.comparisons, unit="of each scene", disable=None):
            for scene, verdict in zip(SCENES, found, strict=True):
                counts[scene.name][verdict] += 1
            if time.monotonic() > deadline:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    for name, of_scene in counts.items():
        total = of_scene.total()
        shares = " ".join(f"{of_scene[verdict] / max(total, 1):12.1%}" for verdict in _SHOWN)
        print(f"{name:34s} {total:5d} {shares}")
    return 0


_SHOWN = (Verdict.PASS, Verdict.IMPROVEMENT, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE)


def _verdicts(number: int, *, options: argparse.Namespace) -> list[Verdict]:
    return [_verdict(scene, number, options) for scene in SCENES]


def _verdict(scene: Scene, number: int, options: argparse.Namespace) -> Verdict:
    # Another draw of what is accepted in each comparison, the same in both of its runs.
    luck = None if scene.head.luck is None else number
    head = replace(scene.head, noise=options.noise, luck=luck)
    base = Truth(noise=options.noise, luck=luck)
    runs = [
        made_up(
            seed=2 * number + side,
            temperatures=(scene.temperature,),
            num_prompts=options.prompts,
            num_repeats=options.repeats,
            truth=truth,
        )
        for side, truth in enumerate((base, head))
    ]
    return compare(*runs, gate()).verdict


if __name__ == "__main__":
    sys.exit(main())
