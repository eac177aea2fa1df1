"""Register the schemas with Hydra and turn a composed configuration into plain dataclasses."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import schema
from harness.config.validate import validate
from harness.errors import ConfigError
from harness.registry import suggest

_GROUPS = {
    "backend": schema.BackendConfig,
    "pair": schema.PairConfig,
    "method": schema.MethodConfig,
    "sampling": schema.SamplingConfig,
    "workload": schema.WorkloadConfig,
    "quantization": schema.QuantizationConfig,
    "measure": schema.MeasureConfig,
}


def register_schemas() -> None:
    """Make each schema known to Hydra as `<group>/schema`, and the root as `schema`."""
    store = ConfigStore.instance()
    store.store(name="schema", node=schema.HarnessConfig)
    for group, node in _GROUPS.items():
        store.store(group=group, name="schema", node=node)


def to_config(composed: DictConfig) -> schema.HarnessConfig:
    """Turn what Hydra composed (without its own `hydra` node) into a checked `HarnessConfig`.

    Raises:
        ConfigError: an unknown key, a missing value, or a value of the wrong type or range.
    """
    try:
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        remedy = str(error).splitlines()[0]
        raise ConfigError(error.full_key or "config", "must be set", "nothing", f"{remedy}.") from error
    if not isinstance(plain, dict):
        raise ConfigError("config", "must be a mapping", type(plain).__name__)
    refuse_unknown_keys({str(key): value for key, value in plain.items()}, schema.HarnessConfig)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema.HarnessConfig), plain)
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        first_line = str(error).splitlines()[0]
        raise ConfigError(error.full_key or "config", first_line, _value(plain, error.full_key)) from error
    assert isinstance(config, schema.HarnessConfig)
    validate(config)
    return config


def refuse_unknown_keys(values: dict[str, Any], node: type, *, path: str = "") -> None:
    """Compare a mapping's keys with a schema's fields, all the way down.

    Raises:
        ConfigError: naming the first unknown key and the likeliest meant.
    """
    hints = get_type_hints(node)
    names = {item.name for item in fields(node)}
    for key, value in values.items():
        full = f"{path}{key}"
        if key not in names:
            raise ConfigError(full, "isn't a known key", value, suggest(key, names))
        inner = _without_none(hints[key])
        if is_dataclass(inner) and isinstance(value, dict):
            refuse_unknown_keys(value, inner, path=f"{full}.")  # type: ignore[arg-type]
        elif isinstance(value, list):
            for index, item in enumerate(value):
                element = next(iter(get_args(inner)), None)
                if is_dataclass(element) and isinstance(item, dict):
                    refuse_unknown_keys(item, element, path=f"{full}[{index}].")  # type: ignore[arg-type]


def _without_none(hint: Any) -> Any:
    """What a field holds where it isn't null."""
    if isinstance(hint, UnionType):
        return next(part for part in get_args(hint) if part is not NoneType)
    return hint


def _value(plain: Any, full_key: str | None) -> Any:
    for part in (full_key or "").split("."):
        plain = plain.get(part) if isinstance(plain, dict) else None
    return plain
