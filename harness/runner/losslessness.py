"""Is each variant's output the target's? Asked once a cell is measured."""

from __future__ import annotations

from collections.abc import Sequence

from harness.backends.base import Session
from harness.records import Variant
from harness.runner.distribution_check import check_distribution
from harness.runner.greedy_check import check_greedy
from harness.runner.outputs import Outputs
from harness.runner.plan import CellPlan
from harness.runner.scoring import BudgetedScorer
from harness.verdicts import LosslessRow


def check_lossless(
    session: Session, plan: CellPlan, variants: Sequence[Variant], outputs: Outputs
) -> list[LosslessRow]:
    """Check the measured outputs of a cell; docs/lossless.md says how.

    Args:
        session: that measured them.
        plan: the cell.
        variants: those that were measured, the baseline first.
        outputs: of the cell.

    Returns:
        One row per variant, the baseline's being the control.
    """
    scorer = BudgetedScorer(session, plan)
    if plan.decoding.temperature == 0:
        return check_greedy(variants, plan.variants[0].variant_id, outputs, scorer)
    return check_distribution(variants, outputs, scorer, seed=plan.config.measure.seed)
