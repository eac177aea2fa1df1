"""How numbers are written: the one place where a stored value becomes text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

MISSING = "\N{EN DASH}"
"""Stands where a value is unknown; the reason is given beside it."""

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_FACTORS = {"%": 0.01, "us": 1e-6, "ms": 1e-3, "min": 60.0} | {
    unit: 1024.0**power for power, unit in enumerate(_BYTE_UNITS)
}
_QUANTITY = re.compile(r"(?:[<>] ?)?(?P<digits>[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?) ?(?P<unit>[A-Za-z%]*)")


def number(value: object) -> float | None:
    """A finite float, or None for anything else."""
    if value is None or isinstance(value, (bool, str, bytes)):
        return None
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def ratio(value: object) -> str:
    """A speedup such as `1.53x`."""
    found = number(value)
    return MISSING if found is None else f"{found:.2f}x"


def k_is(k: object) -> str:
    """`k = 3`, kept on one line."""
    found = number(k)
    return f"k\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{MISSING if found is None else f'{found:g}'}"


def percent(value: object) -> str:
    """A share of 1 as a percentage; one decimal where it would read 0 or 100."""
    found = number(value)
    if found is None:
        return MISSING
    digits = 1 if 0 < found < 0.01 or 0.99 < found < 1 else 0
    return f"{100 * found:.{digits}f}%"


def seconds(value: object) -> str:
    """A duration in the unit that leaves two or three digits: us, ms, s or min."""
    found = number(value)
    if found is None:
        return MISSING
    if found == 0:
        return "0 s"
    if abs(found) < 1e-3:
        return f"{_significant(found * 1e6)} us"
    if abs(found) < 1:
        return f"{_significant(found * 1e3)} ms"
    if abs(found) < 120:
        return f"{_significant(found)} s"
    return f"{found / 60:.1f} min"


def milliseconds(value: object) -> str:
    """A duration in milliseconds without its unit, for a column that names it."""
    found = number(value)
    return MISSING if found is None else _significant(found * 1e3)


def rate(value: object) -> str:
    """Tokens per second without the unit, for a column that names it."""
    found = number(value)
    if found is None:
        return MISSING
    return f"{found:,.0f}" if abs(found) >= 100 else _significant(found)


def decimal(value: object) -> str:
    """A plain quantity such as tokens per forward, to two decimals."""
    found = number(value)
    return MISSING if found is None else f"{found:.2f}"


def count(value: object) -> str:
    """An integer with thousands separators."""
    found = number(value)
    return MISSING if found is None else f"{round(found):,}"


def size(value: object) -> str:
    """Bytes in binary units, such as `1.50 GiB`."""
    found = number(value)
    if found is None:
        return MISSING
    step = 0
    while abs(found) >= 1024 and step < len(_BYTE_UNITS) - 1:
        found, step = found / 1024, step + 1
    return f"{found:.0f} B" if step == 0 else f"{_significant(found)} {_BYTE_UNITS[step]}"


def fact(value: object) -> str:
    """A configuration value as a reader would write it: `0.7`, `off`, `bfloat16`."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def quantity(text: str) -> float | None:
    """The number that a text starts with, in base units (seconds, bytes, shares of 1); None without one."""
    found = _QUANTITY.match(text)
    if found is None:
        return None
    return float(found["digits"].replace(",", "")) * _FACTORS.get(found["unit"], 1.0)


def with_interval(values: Sequence[object], write: Callable[[object], str]) -> str:
    """A value and its interval, `1.53x [1.47, 1.60]`; the value alone where there is no interval.

    Args:
        values: value, lower end, upper end.
        write: how one of them is written; a unit at the end is said once.
    """
    value, low, high = values
    if number(value) is None or number(low) is None or number(high) is None:
        return write(value)
    return f"{write(value)} [{_bare(write(low))}, {_bare(write(high))}]"


def _bare(text: str) -> str:
    return text.removesuffix("x").removesuffix("%")


def _significant(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    size_of = abs(value)
    digits = 0 if size_of >= 100 else 1 if size_of >= 10 else 2
    return f"{value:.{digits}f}"
