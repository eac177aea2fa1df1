from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from harness.capacity.acceptance import Acceptance, constant_acceptance, measured_acceptance, no_drafts
from harness.errors import ResultFormatError


def steps(
    alphas: dict[str, float],
    *,
    k: int = 4,
    num_steps: int = 400,
    seed: int = 0,
    empty: float = 0.0,
    task: str = "chat",
) -> pd.DataFrame:
    """Steps of prompts whose drafted tokens each stand with the prompt's alpha."""
    rng = np.random.default_rng(seed)
    frames = []
    for prompt, alpha in alphas.items():
        drafts = np.where(rng.random(num_steps) < empty, 0, k)
        standing = np.cumprod(rng.random((num_steps, k)) < alpha, axis=1).sum(axis=1)
        frames.append(
            pd.DataFrame(
                {
                    "task": task,
                    "prompt_id": prompt,
                    "proposed": drafts,
                    "accepted": np.minimum(standing, drafts),
                }
            ).assign(free=True)
        )
    return pd.concat(frames, ignore_index=True)


def test_conditional_rates_come_back_prompt_by_prompt() -> None:
    table = measured_acceptance(steps({"hard": 0.3, "easy": 0.9}, num_steps=3000), 4)
    easy, hard = table.conditional  # prompts in the order of their names
    np.testing.assert_allclose(easy, 0.9, atol=0.03)
    np.testing.assert_allclose(hard, 0.3, atol=0.05)
    assert table.mean_emitted() == pytest.approx(
        1 + (0.9 * (1 - 0.9**4) / 0.1 + 0.3 * (1 - 0.3**4) / 0.7) / 2, rel=0.03
    )


def test_prompts_with_few_steps_are_pulled_to_the_others() -> None:
    alike = {f"p{n}": 0.6 for n in range(30)}
    table = measured_acceptance(steps(alike, num_steps=8, seed=3), 4)
    raw = steps(alike, num_steps=8, seed=3).groupby("prompt_id")["accepted"].mean()
    spread = table.conditional[:, 0].std()
    assert spread < 0.3 * (raw / raw.mean()).std()
    assert table.conditional[:, 0].mean() == pytest.approx(0.6, abs=0.06)


def test_the_mean_yield_is_the_measured_one() -> None:
    rng = np.random.default_rng(1)
    drawn = steps({f"p{n}": float(rng.beta(5, 3)) for n in range(40)}, num_steps=60)
    table = measured_acceptance(drawn, 4)
    assert table.mean_emitted() == pytest.approx(1 + drawn["accepted"].mean(), rel=0.02)


def test_empty_drafts_are_drawn_too() -> None:
    table = measured_acceptance(steps({"a": 0.8, "b": 0.8}, empty=0.4, num_steps=2000), 4)
    np.testing.assert_allclose(table.drafted, 0.6, atol=0.04)
    np.testing.assert_allclose(table.conditional, 0.8, atol=0.04)


def test_steps_the_limit_shortened_say_nothing_about_drafting() -> None:
    drawn = steps({"a": 0.8}, num_steps=100)
    drawn.loc[90:, ["proposed", "accepted"]] = [1, 1]
    drawn.loc[90:, "free"] = False
    assert (measured_acceptance(drawn, 4).drafted == 1).all()


def test_ten_points_less() -> None:
    table = constant_acceptance([0.9, 0.05]).shifted(-0.1)
    np.testing.assert_allclose(table.conditional, [[0.8, 0.0]])


def test_tasks_that_were_not_measured_take_all_profiles() -> None:
    table = Acceptance(1, ("chat", "code", "chat"), np.zeros((3, 1)), np.ones((3, 1)))
    assert table.of_task("chat").tolist() == [0, 2]
    assert table.of_task("poetry").tolist() == [0, 1, 2]
    assert no_drafts().mean_emitted() == 1.0


def test_no_draft_at_all_is_an_error() -> None:
    drawn = steps({"a": 0.8}, empty=1.0)
    with pytest.raises(ResultFormatError, match="no step drafted"):
        measured_acceptance(drawn, 4)
