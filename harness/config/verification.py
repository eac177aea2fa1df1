"""How drafted tokens are accepted: exactly, or by plausibility, which changes the output."""

from __future__ import annotations

import math
from typing import Any

from harness.config.schema import MethodConfig
from harness.errors import ConfigError

_EXACT, _TYPICAL = "exact", "typical"


def is_typical(method: MethodConfig) -> bool:
    """Whether a method's drafts are accepted by plausibility, so that its output isn't the target's."""
    return method.verification == _TYPICAL


def check_verification(method: MethodConfig, field: str) -> None:
    """Refuse a verification that there isn't, or thresholds out of range.

    Raises:
        ConfigError: naming the field, what it must be, what it is and the remedy.
    """
    if method.verification not in (_EXACT, _TYPICAL):
        remedy = f"{_EXACT} is lossless, {_TYPICAL} isn't."
        raise ConfigError(
            f"{field}.verification", f"must be {_EXACT} or {_TYPICAL}", method.verification, remedy
        )
    if is_typical(method) and method.name == "synthetic":
        remedy = "Its tokens stand by lot: leave verification out."
        raise ConfigError(f"{field}.verification", f"must be {_EXACT} for synthetic", _TYPICAL, remedy)
    for name, value in (("epsilon", method.epsilon), ("delta", method.delta)):
        if value is not None and not 0 < value < 1:
            raise ConfigError(f"{field}.{name}", "must lie between 0 and 1", value)


def verification_options(method: MethodConfig) -> tuple[tuple[str, Any], ...]:
    """What a variant carries of it; nothing where tokens are accepted exactly."""
    if not is_typical(method):
        return ()
    delta = math.sqrt(method.epsilon) if method.delta is None else method.delta
    return (("verification", _TYPICAL), ("epsilon", method.epsilon), ("delta", delta))


def verification_label(method: MethodConfig) -> str:
    """A short name, part of the variant's, `typical0.09`; with delta where that was given."""
    given = "" if method.delta is None else f"-{method.delta:g}"
    return f"{_TYPICAL}{method.epsilon:g}{given}"
