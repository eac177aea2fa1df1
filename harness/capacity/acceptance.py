"""How far drafts get: conditional acceptance by place, prompt by prompt, so that tails aren't zero."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.capacity.fitting import FloatArray
from harness.errors import ResultFormatError

IntArray = npt.NDArray[np.int64]

_DRAFT_PRIOR_STEPS = 20.0
_MAX_PRIOR_TESTS = 1e6
_FIT_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What drafts of one method and k yield, as a set of profiles: one per measured prompt.

    A request draws a profile of its task and keeps it, so that hard prompts are hard throughout.

    Attributes:
        k: drafted tokens per step.
        tasks: the profiles' tasks.
        conditional: [num_profiles, k] probability that a token stands, those before it having stood.
        drafted: [num_profiles, k] probability that a step drafts so many tokens or more.
    """

    k: int
    tasks: tuple[str, ...]
    conditional: FloatArray
    drafted: FloatArray

    @property
    def survival(self) -> FloatArray:
        """[num_profiles, k] probability that a full draft stands up to each place."""
        return np.asarray(np.cumprod(self.conditional, axis=1), dtype=np.float64)

    def mean_emitted(self) -> float:
        """Expected tokens of a step of the mean profile, the target's own included."""
        return float(1 + (self.survival * self.drafted).sum(axis=1).mean())

    def shifted(self, points: float) -> Acceptance:
        """The same with every conditional acceptance moved by `points` (0.1 is ten points), within [0, 1]."""
        return replace(self, conditional=np.clip(self.conditional + points, 0.0, 1.0))

    def of_task(self, task: str) -> IntArray:
        """Numbers of the task's profiles; of all where the task was never measured."""
        found = np.flatnonzero(np.asarray(self.tasks) == task)
        return found if found.size else np.arange(len(self.tasks))


def no_drafts() -> Acceptance:
    """Acceptance without drafting: k = 0."""
    return Acceptance(0, ("any",), np.zeros((1, 0)), np.zeros((1, 0)))


def constant_acceptance(conditional: npt.ArrayLike, *, task: str = "any") -> Acceptance:
    """One profile that always drafts k tokens.

    Args:
        conditional: [k] probability that each token stands, those before it having stood.
        task: of the profile.
    """
    row = np.atleast_2d(np.asarray(conditional, dtype=np.float64))
    return Acceptance(row.shape[1], (task,), row, np.ones_like(row))


def measured_acceptance(steps: pd.DataFrame, k: int) -> Acceptance:
    """Profiles of the measured prompts, each pulled towards its task as far as its few steps demand.

    Args:
        steps: of one method and k; see `MeasuredSteps.sequences`.
        k: drafted tokens per step.

    Raises:
        ResultFormatError: no step drafted anything.
    """
    if steps.empty or not steps["proposed"].max() > 0:
        raise ResultFormatError(f"k={k}: no step drafted a token, so acceptance is unknown. Measure again.")
    keys = steps[["task", "prompt_id"]].astype(str)
    groups = keys.groupby(["task", "prompt_id"], sort=True)
    prompts, index = [key for key, _ in groups], np.asarray(groups.ngroup(), dtype=np.int64)
    tasks = tuple(str(task) for task, _ in prompts)
    reached, stood = _counts(steps, index, len(prompts), k)
    conditional = _shrunk(stood, reached, np.unique(tasks, return_inverse=True)[1])
    return Acceptance(k, tasks, conditional, _drafted(steps, index, len(prompts), k))


def _counts(steps: pd.DataFrame, index: IntArray, num_prompts: int, k: int) -> tuple[FloatArray, FloatArray]:
    """[num_prompts, k] steps that reached each place, and steps in which its token stood."""
    proposed, accepted = steps["proposed"].to_numpy(), steps["accepted"].to_numpy()
    places = np.arange(1, k + 1)
    stood_at = accepted[:, None] >= places
    reached_at = np.minimum(accepted + 1, proposed)[:, None] >= places
    out = np.zeros((2, num_prompts, k))
    np.add.at(out[0], index, reached_at)
    np.add.at(out[1], index, stood_at)
    return out[0], out[1]


def _shrunk(stood: FloatArray, reached: FloatArray, task: IntArray) -> FloatArray:
    """Each prompt's rates: a factor of the prompt times one of the place in the draft.

    A prompt's factor is pulled towards its task's, a task's towards that of all, each as strongly as they are
    alike. Factors of places are fitted beside them, as easy prompts reach the deep places more often.

    Source: moments of the beta-binomial distribution (Kleinman, "Proportions with extraneous variance",
    1973).
    """
    of_task = (task[:, None] == np.arange(task.max() + 1)).astype(np.float64)
    totals, hits, task_hits = reached.sum(axis=0), stood.sum(axis=1), of_task.T @ stood.sum(axis=1)
    overall = stood.sum() / max(reached.sum(), 1.0)
    place = np.where(totals > 0, stood.sum(axis=0) / np.maximum(totals, 1.0), overall)
    expected = reached @ place
    task_factor = task_hits / np.maximum(of_task.T @ expected, 1e-12)
    lost = np.where(of_task.sum(axis=0) > 1, 1 - 1 / np.maximum(of_task.sum(axis=0), 2), 0.0)[task]
    within = _prior_tests(hits, reached, expected * task_factor[task], lost) * overall
    between = _prior_tests(task_hits, of_task.T @ reached, of_task.T @ expected) * overall
    for _ in range(_FIT_ROUNDS):
        expected = reached @ place
        pulled = (task_hits + between) / np.maximum(of_task.T @ expected + between, 1e-12)
        prompt = (hits + within * pulled[task]) / np.maximum(expected + within, 1e-12)
        place = np.where(totals > 0, stood.sum(axis=0) / np.maximum(prompt @ reached, 1e-12), overall)
    return np.asarray(np.clip(prompt[:, None] * place, 0.0, 1.0), dtype=np.float64)


def _prior_tests(
    hits: FloatArray, reached: FloatArray, expected: FloatArray, freedom: FloatArray | float = 1.0
) -> float:
    """How many tests of its own a prompt (or task) needs to outweigh the others.

    Args:
        hits: [num] tokens that stood.
        reached: [num, k] tokens tested.
        expected: [num] hits if all were alike.
        freedom: [num] what is left of each one's variance about a mean it took part in; 0 leaves it out.
    """
    tests = reached.sum(axis=1)
    rate = np.clip(expected / np.maximum(tests, 1.0), 0.0, 1.0)
    chance = tests * rate * (1 - rate) * freedom
    told = np.where(np.asarray(freedom) > 0, (hits - expected) ** 2, 0.0)
    pairs = (chance * np.maximum(tests - 1, 0)).sum()
    alike = (told.sum() - chance.sum()) / pairs if pairs > 0 else 0.0  # correlation of two tests
    return min(_MAX_PRIOR_TESTS, (1 - alike) / alike) if alike > 1 / _MAX_PRIOR_TESTS else _MAX_PRIOR_TESTS


def _drafted(steps: pd.DataFrame, index: IntArray, num_prompts: int, k: int) -> FloatArray:
    """[num_prompts, k] how often a step that had room drafts so many tokens or more."""
    free = steps["free"].to_numpy(dtype=bool)
    if not free.any():
        free = np.ones(len(steps), dtype=bool)
    at_least = steps["proposed"].to_numpy()[free, None] >= np.arange(1, k + 1)
    counts, rooms = np.zeros((num_prompts, k)), np.bincount(index[free], minlength=num_prompts)
    np.add.at(counts, index[free], at_least)
    pooled = at_least.mean(axis=0)
    return np.asarray((counts + _DRAFT_PRIOR_STEPS * pooled) / (rooms + _DRAFT_PRIOR_STEPS)[:, None])
