"""Names of backends and methods, and where third parties add theirs (entry points)."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from harness.errors import ConfigError

BACKEND_GROUP = "specdec_harness.backends"
"""Entry point group of third-party backends: each names a `harness.backends.base.Backend`."""

_BACKENDS = {
    "native": "harness.backends.native:NativeBackend",
    "simulator": "harness.backends.simulator.backend:SimulatorBackend",
    "transformers": "harness.backends.transformers.backend:TransformersBackend",
    "vllm": "harness.backends.vllm.backend:VllmBackend",
}


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft.

    Attributes:
        name: as configured.
        drafts: whether it proposes tokens, so that `k` has a meaning.
        needs_drafter: whether it takes a draft model.
        drafter_is_head: whether that is a part for the target, without tokens of its own.
        backends: shipped backends that run it.
    """

    name: str
    drafts: bool
    needs_drafter: bool
    backends: tuple[str, ...]
    drafter_is_head: bool = False


_EVERY_BACKEND = ("native", "simulator", "transformers", "vllm")

METHODS = {
    method.name: method
    for method in (
        Method("autoregressive", drafts=False, needs_drafter=False, backends=_EVERY_BACKEND),
        Method("draft_model", drafts=True, needs_drafter=True, backends=_EVERY_BACKEND),
        Method("synthetic", drafts=True, needs_drafter=True, backends=("native",)),
        Method("eagle", drafts=True, needs_drafter=True, backends=("native", "vllm"), drafter_is_head=True),
        Method("medusa", drafts=True, needs_drafter=True, backends=("native", "vllm"), drafter_is_head=True),
        Method("ngram", drafts=True, needs_drafter=False, backends=_EVERY_BACKEND),
        Method("suffix", drafts=True, needs_drafter=False, backends=("vllm",)),
        Method("mtp", drafts=True, needs_drafter=False, backends=("vllm",)),
        Method("eagle3", drafts=True, needs_drafter=True, backends=("vllm",), drafter_is_head=True),
    )
}


def backend_names() -> list[str]:
    """Every backend that can be configured, shipped or added."""
    return sorted({*_BACKENDS, *(point.name for point in entry_points(group=BACKEND_GROUP))})


def load_backend(name: str) -> Any:
    """Import a backend class; nothing of it is imported before.

    Raises:
        ConfigError: no backend has that name.
    """
    if name in _BACKENDS:
        module, _, attribute = _BACKENDS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in entry_points(group=BACKEND_GROUP):
        if point.name == name:
            return point.load()
    raise ConfigError("backend.name", "must be one of the backends", name, suggest(name, backend_names()))


def find_method(name: str, *, field: str = "method.name") -> Method:
    """Look a method up.

    Raises:
        ConfigError: no method has that name.
    """
    if name not in METHODS:
        raise ConfigError(field, "must be one of the methods", name, suggest(name, METHODS))
    return METHODS[name]


def suggest(word: str, known: Iterable[str]) -> str:
    """A remedy for a misspelt name: the closest known ones, and the whole list where it's short."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=2, cutoff=0.5)
    guess = f"Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
    listing = f"Known: {', '.join(names)}." if len(names) <= 24 else ""
    return " ".join(part for part in (guess, listing) if part)
