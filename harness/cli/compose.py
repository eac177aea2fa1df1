"""Compose every cell of a command line before anything is measured, with errors a person can act on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.initialize import initialize_config_dir
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from harness.config.schema import HarnessConfig, MethodConfig, VllmConfig
from harness.config.simulated import FailureConfig, SimulatorConfig, TaskConfig
from harness.config.store import to_config
from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.registry import suggest

CONFIG_NAME = "config"


def compose_cells(
    overrides: Sequence[str],
    *,
    config_dir: str | None = None,
    config_name: str = CONFIG_NAME,
    multirun: bool = False,
) -> list[HarnessConfig]:
    """Compose and check each job that Hydra would run, in its order.

    Args:
        overrides: as on the command line.
        config_dir: a user's folder of further configuration.
        config_name: primary configuration file.
        multirun: whether `-m` was given; a sweep file can ask for it itself.

    Raises:
        ConfigError: an override, a group, a file or a value is wrong.
    """
    if config_dir and not Path(config_dir).is_dir():
        raise ConfigError("--config-dir", "must be a folder", config_dir)
    search = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
    with _initialized(), _readable_errors(overrides):
        loader = GlobalHydra.instance().config_loader()
        lines = [*search, *overrides]
        master = loader.load_configuration(
            config_name, overrides=lines, run_mode=RunMode.MULTIRUN, from_shell=True
        )
        if multirun or master.hydra.mode == RunMode.MULTIRUN:
            jobs = [loader.load_sweep_config(master, job) for job in _jobs(master, overrides)]
        else:
            single = loader.load_configuration(
                config_name, overrides=lines, run_mode=RunMode.RUN, from_shell=True
            )
            jobs = [single]
        return [to_config(_without_hydra(job)) for job in jobs]


def _jobs(master: DictConfig, overrides: Sequence[str]) -> list[list[str]]:
    params = master.hydra.sweeper.get("params") or {}
    arguments = [f"{key}={value}" for key, value in params.items()]
    parsed = OverridesParser.create().parse_overrides([*arguments, *overrides])
    batches = BasicSweeper.split_arguments(parsed, None)
    return [list(job) for batch in batches for job in batch]


def _without_hydra(config: DictConfig) -> DictConfig:
    copy = config.copy()
    OmegaConf.set_readonly(copy, False)
    with open_dict(copy):
        copy.pop("hydra", None)
    return copy


@contextmanager
def _initialized() -> Iterator[None]:
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir()), job_name="harness"):
        yield


@contextmanager
def _readable_errors(overrides: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except MissingConfigException as error:
        raise _missing_group(error) from error
    except OverrideParseException as error:
        remedy = f"{_first_line(error)}. Put a value with '=', ',' or brackets in quotes: 'key=\"a=b\"'."
        raise ConfigError("command line", "can't be read", error.override, remedy) from error
    except AssertionError as error:
        below_null = _below_null(overrides)
        if below_null is None:
            raise
        raise below_null from error
    except (HydraException, OmegaConfBaseException) as error:
        raise _bad_override(error, overrides) from error


def _missing_group(error: MissingConfigException) -> ConfigError:
    name = error.missing_cfg_file or ""
    group, _, option = str(name).rpartition("/")
    return ConfigError(
        group or "configuration", "has no such file", option, suggest(option, error.options or ())
    )


def _below_null(overrides: Sequence[str]) -> ConfigError | None:
    """What OmegaConf only asserts: a key below a node that is null for every other backend."""
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        node = key.partition(".")[0]
        if node in ("simulator", "vllm") and key != node:
            return ConfigError(key, f"is for backend={node} alone", value, f"Add backend={node}.")
    return None


def _bad_override(error: Exception, overrides: Sequence[str]) -> ConfigError:
    if str(error).startswith("Ambiguous value"):
        given = _first_line(error).partition("'")[2].rstrip("'")
        remedy = "Add -m to measure each as a cell of its own, or write a list as 'key=[1,2]'."
        raise ConfigError(given.partition("=")[0], "takes one value", given.partition("=")[2], remedy)
    text = str(error.__cause__ or error)
    overridden = re.search(r"Could not override '([^']+)'", str(error))
    found = re.search(r"full_key: (\S+)", text) or overridden
    key = found.group(1) if found else "command line"
    if overridden and not key.startswith(overridden.group(1)):
        key = f"{overridden.group(1)}[].{key}"  # the key of an item of a list
    values = {name.lstrip("+~"): value for name, _, value in (o.partition("=") for o in overrides)}
    received = values.get(key.partition("[")[0], text)
    if "not in struct" in text or re.search(r"Key '\S+' not in", text):
        return ConfigError(key, "isn't a known key", received, suggest(key, _known_keys()))
    return ConfigError(key, _first_line(error.__cause__ or error), received)


def _known_keys() -> list[str]:
    whole = HarnessConfig(simulator=SimulatorConfig(), vllm=VllmConfig())
    tree: Any = OmegaConf.to_container(OmegaConf.structured(whole))
    items = {"compare": MethodConfig, "simulator.tasks": TaskConfig, "simulator.failures": FailureConfig}
    below = [f"{key}[].{item.name}" for key, node in items.items() for item in fields(node)]
    return [*_dotted(tree), *below]


def _dotted(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
