"""Rules about how steady the clock and the machine were while a cell was measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu, theilslopes

from harness.findings.finding import Confidence, Sighting, Topic, beyond, rule
from harness.findings.tables import Tables

SLOWER_AT_FIRST = 0.10
NUM_FIRST_BLOCKS = 2
FEWEST_LATER_BLOCKS = 6
DRIFT = 0.10
FEWEST_TRIALS = 8
NOISE = 0.05
OUTLIER_FACTOR = 1.5
MANY_OUTLIERS = 0.02
_NEIGHBOURS = 15
_TO_STANDARD_DEVIATION = 1.4826  # of a normal distribution, from the median absolute deviation


@rule(
    title="The first measured trials are slower than the later ones: the warmup was too short",
    topic=Topic.MEASUREMENT,
    threshold=f"median of the first {NUM_FIRST_BLOCKS} blocks more than {SLOWER_AT_FIRST:.0%} over that of "
    "the rest",
    next_step="Raise measure.warmup_prompts until the first blocks are no slower.",
    reads_rows=True,
)
def short_warmup(tables: Tables) -> Iterator[Sighting]:
    """Steps of the first blocks against the later ones, each variant by its own median."""
    for cell_id, trials in tables.trials.groupby("cell_id", sort=False):
        relative = _relative_seconds(trials)
        early = trials["block"] < trials["block"].min() + NUM_FIRST_BLOCKS
        first, rest = relative[early].dropna(), relative[~early].dropna()
        if trials.loc[~early, "block"].nunique() < FEWEST_LATER_BLOCKS or first.empty:
            continue
        slower = float(first.median() / rest.median() - 1)
        p_value = float(mannwhitneyu(first, rest, alternative="greater").pvalue)
        if slower > SLOWER_AT_FIRST and p_value < 0.01:
            text = f"the first {NUM_FIRST_BLOCKS} blocks took {slower:.0%} longer per step than the rest."
            figures = {"slower": slower, "p_value": p_value, "num_first_trials": len(first)}
            yield Sighting(str(cell_id), None, text, figures, Confidence.CLEAR)


@rule(
    title="The machine's speed drifted while the cell was measured",
    topic=Topic.MEASUREMENT,
    threshold=f"the baseline's steps changed by more than {DRIFT:.0%} from the cell's start to its end",
    next_step="Speedups are safe, as every block holds every variant; don't compare tokens per second with "
    "other runs. Let the machine cool down, pin its clock, or run it alone.",
    reads_rows=True,
)
def baseline_drift(tables: Tables) -> Iterator[Sighting]:
    """A robust slope of the baseline's seconds per step over time."""
    for cell_id, trials in tables.baseline_trials.groupby("cell_id", sort=False):
        seconds = _seconds(trials)
        known = pd.DataFrame({"at": trials["started_s"], "log": np.log(seconds)}).dropna()
        span = float(known["at"].max() - known["at"].min()) if len(known) >= FEWEST_TRIALS else 0.0
        if not span:
            continue
        slope, _, low, high = theilslopes(known["log"], known["at"], alpha=0.95)
        change, ends = np.expm1(slope * span), sorted(np.expm1(np.array([low, high]) * span))
        if abs(change) > DRIFT and ends[0] * ends[1] > 0:
            way = "slower" if change > 0 else "faster"
            text = f"the baseline's steps became {abs(change):.0%} {way} over {_duration(span)}."
            figures = {"drift": float(change), "drift_low": float(ends[0]), "drift_high": float(ends[1])}
            nearest = min(abs(end) for end in ends)
            confidence = beyond(DRIFT, low=nearest, high=None, below=False)
            yield Sighting(str(cell_id), None, text, figures, confidence)


@rule(
    title="The cell is noisy: the same work takes different times",
    topic=Topic.MEASUREMENT,
    threshold=f"trials of the baseline scatter by more than {NOISE:.0%} around their course",
    next_step="Close other programs, set the threads to the physical cores, fix the CPU's clock; then "
    "repeat. More repeats steady the figures, more prompts don't.",
    reads_rows=True,
)
def noisy_cell(tables: Tables) -> Iterator[Sighting]:
    """Scatter of the baseline's seconds per step, neighbour against neighbour, so that drift stays out."""
    for cell_id, trials in tables.baseline_trials.groupby("cell_id", sort=False):
        logs = np.log(_seconds(trials.sort_values("started_s")).dropna().to_numpy())
        if logs.size < FEWEST_TRIALS:
            continue
        # a difference of two equal spreads has the square root of two times that of one
        jumps = np.diff(logs) / np.sqrt(2)
        spread = float(_TO_STANDARD_DEVIATION * np.median(np.abs(jumps)))
        if spread > NOISE:
            text = f"the time of a step scatters by {spread:.0%} from one trial to the next."
            figures = {"relative_spread": spread, "num_trials": int(logs.size)}
            yield Sighting(str(cell_id), None, text, figures, Confidence.LIKELY)


@rule(
    title="Some trials took far longer than others",
    topic=Topic.MEASUREMENT,
    threshold=f"more than {MANY_OUTLIERS:.0%} of the trials at over {OUTLIER_FACTOR:g} times their "
    "variant's median",
    next_step="Look for what wakes up meanwhile: backups, indexing, other users' jobs. Sums of seconds "
    "feel every such trial.",
    reads_rows=True,
)
def outliers(tables: Tables) -> Iterator[Sighting]:
    """Trials by seconds per token of the same prompt, or per step."""
    for cell_id, trials in tables.trials.groupby("cell_id", sort=False):
        relative = _without_course(_relative_decode_seconds(trials.sort_values("started_s")).dropna())
        many = int((relative > OUTLIER_FACTOR).sum())
        if many >= 2 and many / len(relative) > MANY_OUTLIERS:
            text = (
                f"{many} of {len(relative)} trials; the slowest took {relative.max():.1f} times the median."
            )
            figures = {"num_outliers": many, "num_trials": len(relative), "slowest": float(relative.max())}
            yield Sighting(str(cell_id), None, text, figures, Confidence.COUNTED)


def _seconds(trials: pd.DataFrame) -> pd.Series[float]:
    """Seconds of a step; per token where steps aren't known."""
    return trials["step_s"].fillna(trials["s_per_token"])


def _relative_seconds(trials: pd.DataFrame) -> pd.Series[float]:
    """Over the median of the variant."""
    seconds = _seconds(trials)
    return seconds / seconds.groupby(trials["variant_id"]).transform("median")


def _relative_decode_seconds(trials: pd.DataFrame) -> pd.Series[float]:
    """Decode seconds per step, over the median of the variant: a stall in one step shows as well."""
    seconds = (trials["decode_s"] / trials["num_steps"]).fillna(trials["s_per_token"])
    return seconds / seconds.groupby(trials["variant_id"]).transform("median")


def _without_course(relative: pd.Series[float]) -> pd.Series[float]:
    """Over the median of the neighbours in time, so that drift makes no outliers."""
    return relative / relative.rolling(_NEIGHBOURS, center=True, min_periods=1).median()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
