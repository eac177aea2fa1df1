"""Gate files: which metrics decide, and by how much each may change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.errors import ConfigError
from harness.gate.metric import METRICS
from harness.registry import suggest

DEFAULT_GATE = "default"
_SHIPPED = Path(__file__).parent / "gates"


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """How one metric is judged.

    Attributes:
        margin: the largest change that counts as none: absolute for shares, relative for all else.
        gated: whether its verdict decides.
    """

    margin: float | None = None
    gated: bool = False


@dataclass(frozen=True, slots=True)
class GateSettings:
    """A gate file.

    Attributes:
        name: of the shipped gate, or of the file.
        confidence: of the intervals, and of the whole family of regression tests.
        num_resamples: of the prompts.
        seed: of the resampling.
        allow_new: whether cells and variants that only HEAD has are left aside.
        metrics: by name, in the order they are shown.
    """

    name: str = DEFAULT_GATE
    confidence: float = 0.95
    num_resamples: int = 2000
    seed: int = 0
    allow_new: bool = False
    metrics: Mapping[str, MetricSettings] = field(default_factory=dict)


def gate_names() -> list[str]:
    """The gates that ship with the package."""
    return sorted(file.stem for file in _SHIPPED.glob("*.yaml"))


def load_gate(gate: str = DEFAULT_GATE) -> GateSettings:
    """Read a gate file.

    Args:
        gate: the name of a shipped gate, or the path of a YAML file.

    Raises:
        ConfigError: there's no such gate, or a key, a metric or a value of it is wrong.
    """
    path = Path(gate)
    if path.suffix not in (".yaml", ".yml"):
        path = _SHIPPED / f"{gate}.yaml"
        if gate not in gate_names():
            remedy = f"{suggest(gate, gate_names())} Or give the path of a .yaml file."
            raise ConfigError("gate", "must be one of the gates", gate, remedy)
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except FileNotFoundError as error:
        raise ConfigError("gate", "must be a file", path.name, "Check the path.") from error
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        remedy = " ".join(str(error).split())[:300]
        raise ConfigError("gate", "can't be read as YAML", path.name, remedy) from error
    if not isinstance(content, dict):
        raise ConfigError("gate", "must be a mapping", path.name, "Start from a shipped gate: docs/gate.md.")
    return parse_gate({str(key): value for key, value in content.items()}, name=path.stem)


def parse_gate(content: Mapping[str, Any], *, name: str) -> GateSettings:
    """Check a gate's content.

    Args:
        content: the file's mapping.
        name: of the gate.

    Raises:
        ConfigError: a key or metric is unknown, or a value is of the wrong type or out of range.
    """
    known = {item.name for item in fields(GateSettings)} - {"name"}
    _refuse_unknown(content, known, "")
    values = dict(content)
    metrics = values.pop("metrics", None)
    if not isinstance(metrics, Mapping) or not metrics:
        raise ConfigError("metrics", "must name one metric or more", metrics, suggest("", METRICS))
    _refuse_unknown(metrics, METRICS, "metrics.")
    settings = GateSettings(
        name=name,
        metrics={str(key): _metric(str(key), value) for key, value in metrics.items()},
        **values,
    )
    _check_range("confidence", settings.confidence, low=0.5, high=0.9999)
    _check_count("num_resamples", settings.num_resamples, low=200, high=100_000)
    _check_count("seed", settings.seed, low=0, high=2**63 - 1)
    _check_flag("allow_new", settings.allow_new)
    if not any(one.gated for one in settings.metrics.values()):
        raise ConfigError("metrics", "must gate one metric or more", "none", "Set gated: true for one.")
    return settings


def _metric(name: str, value: object) -> MetricSettings:
    path, metric = f"metrics.{name}", METRICS[name]
    content = {} if value is None else value
    if not isinstance(content, Mapping):
        raise ConfigError(path, "must be a mapping such as {margin: 0.03}", value)
    _refuse_unknown(content, {item.name for item in fields(MetricSettings)}, f"{path}.")
    if not metric.can_be_gated:
        if content:
            raise ConfigError(path, "is a tail: it is reported, never gated", dict(content), "Write {}.")
        return MetricSettings()
    gated = content.get("gated", metric.gated_by_default)
    _check_flag(f"{path}.gated", gated)
    margin = content.get("margin")
    _check_range(f"{path}.margin", margin, low=0.0, high=0.9)
    return MetricSettings(margin=float(margin), gated=gated)  # type: ignore[arg-type]


def _refuse_unknown(content: Mapping[Any, Any], known: Any, path: str) -> None:
    for key, value in content.items():
        if key not in known:
            raise ConfigError(f"{path}{key}", "isn't known to a gate", value, suggest(str(key), known))


def _check_range(path: str, value: object, *, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not low <= value <= high:  # type: ignore[operator]
        raise ConfigError(path, f"must be a number from {low:g} to {high:g}", value)


def _check_count(path: str, value: object, *, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(path, f"must be a whole number from {low} to {high}", value)


def _check_flag(path: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(path, "must be true or false", value)
