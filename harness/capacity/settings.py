"""What a plan is asked: traffic, limits, prices, bounds; from small files and `key=value` words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.registry import suggest

GROUPS = ("traffic", "slo", "prices", "replica")


@dataclass
class LengthSettings:
    """One kind of request.

    Attributes:
        prompt_tokens: mean.
        output_tokens: mean.
        share: of the requests, relative to the other kinds.
        variation: standard deviation of both over their mean; log-normal. 0 makes all alike.
        task: whose acceptance it has; null takes that of all.
    """

    prompt_tokens: int = 200
    output_tokens: int = 200
    share: float = 1.0
    variation: float = 0.5
    task: str | None = None


@dataclass
class TrafficSettings:
    """What arrives.

    Attributes:
        requests_per_s: at the peak of the day, now.
        growth: further peaks to plan for, as multiples of it.
        day: share of the peak in equal parts of a day; empty is a steady day.
        tasks: share of each measured task; empty keeps the workload's mix.
        lengths: kinds of requests; empty takes prompts and outputs as measured.
        trace: CSV file of requests, whose lengths and tasks count instead.
    """

    requests_per_s: float = 1.0
    growth: list[float] = field(default_factory=lambda: [1.0, 2.0, 4.0])
    day: list[float] = field(default_factory=list)
    tasks: dict[str, float] = field(default_factory=dict)
    lengths: list[LengthSettings] = field(default_factory=list)
    trace: str | None = None


@dataclass
class SloSettings:
    """Limits; null sets none. Requests turned away or unfinished count as infinitely slow.

    Attributes:
        ttft_p95_s: time to first token that 95 % of the requests keep, waiting included.
        tpot_p95_s: time per output token after the first.
        total_p95_s: time to the last token.
        availability: share of requests to be served, and how likely enough replicas are up.
    """

    ttft_p95_s: float | None = 2.0
    tpot_p95_s: float | None = 0.1
    total_p95_s: float | None = None
    availability: float = 0.99


@dataclass
class PriceSettings:
    """What a replica costs.

    Attributes:
        replica_hour: price of one replica for an hour.
        currency: its unit.
    """

    replica_hour: float = 1.0
    currency: str = "USD"


@dataclass
class ReplicaSettings:
    """What bounds a replica's scheduler, and how much of it is planned with.

    Attributes:
        max_batch: sequences at once; null takes the largest batch measured.
        kv_tokens: tokens the cache holds; null takes what `memory_gib` leaves, or no limit.
        kv_tokens_with_drafter: the same with a drafter loaded; null takes `kv_tokens`.
        memory_gib: of a replica; needs peaks measured at two batch sizes.
        chunk_tokens: prompt tokens read beside the decoding per step; null reads them whole while it waits.
        step_tokens: tokens of one step; null sets no limit.
        max_waiting: requests that may wait; null sets no limit.
        patience_s: a longer wait turns a request away; null waits for ever.
        headroom: share of the capacity kept free at the peak.
        up_share: share of the time in which one replica is up.
    """

    max_batch: int | None = None
    kv_tokens: int | None = None
    kv_tokens_with_drafter: int | None = None
    memory_gib: float | None = None
    chunk_tokens: int | None = None
    step_tokens: int | None = None
    max_waiting: int | None = None
    patience_s: float | None = None
    headroom: float = 0.2
    up_share: float = 0.995


@dataclass
class SimulationSettings:
    """How much is simulated per load.

    Attributes:
        num_requests: per seed.
        num_seeds: runs whose scatter gives the intervals.
        seed: of the first run.
        adaptive: simulate an adaptive k too.
    """

    num_requests: int = 400
    num_seeds: int = 5
    seed: int = 0
    adaptive: bool = False


@dataclass
class PlanSettings:
    """Everything a plan is asked."""

    traffic: TrafficSettings = field(default_factory=TrafficSettings)
    slo: SloSettings = field(default_factory=SloSettings)
    prices: PriceSettings = field(default_factory=PriceSettings)
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    simulation: SimulationSettings = field(default_factory=SimulationSettings)


def load_settings(words: Sequence[str], *, config_dir: Path | None = None) -> PlanSettings:
    """Settings from words such as `traffic=chat`, `slo=my.yaml` and `traffic.requests_per_s=20`.

    Args:
        words: groups first, then single values, whatever their order.
        config_dir: a folder whose `plan/GROUP/NAME.yaml` are known too.

    Raises:
        ConfigError: a group, a key or a value is wrong.
    """
    pairs = [_pair(word) for word in words]
    config = OmegaConf.structured(PlanSettings)
    for key, value in pairs:
        if key in GROUPS:
            config = _merged(config, {key: _group(key, value, config_dir)}, f"{key}={value}")
    for key, value in pairs:
        if key not in GROUPS:
            if "." not in key:
                raise ConfigError(key, "isn't a known group", value, suggest(key, [*GROUPS, *_keys()]))
            config = _merged(config, OmegaConf.from_dotlist([f"{key}={value}"]), f"{key}={value}")
    settings = OmegaConf.to_object(config)
    if not isinstance(settings, PlanSettings):
        raise ConfigError("plan", "must be plan settings", settings)
    check_settings(settings)
    return settings


def group_names(group: str) -> list[str]:
    """The shipped files of a group."""
    return sorted(file.stem for file in (conf_dir() / "plan" / group).glob("*.yaml"))


def check_settings(settings: PlanSettings) -> None:
    """Refuse values out of range.

    Raises:
        ConfigError: names the key, what it needs and what it got.
    """
    slo, replica = settings.slo, settings.replica
    _check_traffic(settings.traffic)
    for name in ("ttft_p95_s", "tpot_p95_s", "total_p95_s"):
        _above_zero(f"slo.{name}", getattr(slo, name))
    _within("slo.availability", slo.availability, 0.5, 0.999999)
    _above_zero("prices.replica_hour", settings.prices.replica_hour)
    for item in fields(ReplicaSettings):
        if item.name not in ("headroom", "up_share"):
            _above_zero(f"replica.{item.name}", getattr(replica, item.name))
    _within("replica.headroom", replica.headroom, 0.0, 0.9)
    _within("replica.up_share", replica.up_share, 0.5, 1.0)
    _within("simulation.num_requests", settings.simulation.num_requests, 50, 10_000_000)
    _within("simulation.num_seeds", settings.simulation.num_seeds, 1, 100)


def _check_traffic(traffic: TrafficSettings) -> None:
    _above_zero("traffic.requests_per_s", traffic.requests_per_s)
    for name, values in (("growth", traffic.growth), ("day", traffic.day)):
        for place, value in enumerate(values):
            _above_zero(f"traffic.{name}[{place}]", value)
    if not traffic.growth:
        raise ConfigError("traffic.growth", "needs one multiple or more", traffic.growth, "Write [1].")
    if traffic.day and max(traffic.day) > 1:
        raise ConfigError("traffic.day", "holds shares of the peak, at most 1", max(traffic.day))
    for task, share in traffic.tasks.items():
        _above_zero(f"traffic.tasks.{task}", share)
    for place, kind in enumerate(traffic.lengths):
        for name in ("prompt_tokens", "output_tokens", "share"):
            _above_zero(f"traffic.lengths[{place}].{name}", getattr(kind, name))
        _within(f"traffic.lengths[{place}].variation", kind.variation, 0.0, 5.0)


def _pair(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not sign or not key or not value:
        raise ConfigError(
            "command line", "takes GROUP=NAME or KEY=VALUE", word, f"Groups: {', '.join(GROUPS)}."
        )
    return key.strip(), value.strip()


def _group(group: str, value: str, config_dir: Path | None) -> DictConfig:
    file = Path(value)
    if file.suffix not in (".yaml", ".yml"):
        folders = [*([config_dir / "plan"] if config_dir else []), conf_dir() / "plan"]
        files = [folder / group / f"{value}.yaml" for folder in folders]
        known = group_names(group)
        found = next((one for one in files if one.is_file()), None)
        if found is None:
            remedy = f"{suggest(value, known)} Or give the path of a .yaml file."
            raise ConfigError(group, "has no such file", value, remedy)
        file = found
    try:
        content = OmegaConf.load(file)
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(
            group, "can't be read as YAML", file.name, " ".join(str(error).split())[:300]
        ) from error
    if not isinstance(content, DictConfig):
        raise ConfigError(group, "must be a mapping", file.name)
    return content


def _merged(config: DictConfig, more: DictConfig | Mapping[str, Any], said: str) -> DictConfig:
    try:
        merged = OmegaConf.merge(config, more)
    except (OmegaConfBaseException, ValueError, TypeError) as error:
        key = getattr(error, "full_key", None) or said.partition("=")[0]
        if "not in" in str(error):
            raise ConfigError(
                key, "isn't a known key", said.partition("=")[2], suggest(str(key), _keys())
            ) from error
        raise ConfigError(key, str(error).strip().splitlines()[0], said.partition("=")[2]) from error
    assert isinstance(merged, DictConfig)
    return merged


def _keys(settings: type[Any] = PlanSettings, prefix: str = "") -> list[str]:
    """Every key that can be set."""
    found: list[str] = []
    for name, value in ((item.name, getattr(settings(), item.name)) for item in fields(settings)):
        found += _keys(type(value), f"{prefix}{name}.") if is_dataclass(value) else [f"{prefix}{name}"]
    return found


def _above_zero(key: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise ConfigError(key, "must be above 0", value)


def _within(key: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise ConfigError(key, f"must lie between {low:g} and {high:g}", value)
