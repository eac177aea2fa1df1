"""What a method drafts with, in which shape and how often: checks, and the options of its variants."""

from __future__ import annotations

from typing import Any

from harness.config.schema import HarnessConfig, MethodConfig, PairConfig
from harness.config.trees import parse_tree
from harness.config.verification import (
    check_verification,
    is_typical,
    verification_label,
    verification_options,
)
from harness.errors import ConfigError
from harness.registry import find_method

_BACKEND = "native"
_DRAFTERS = ("draft_model", "eagle", "medusa")
_MAX_FED = 63
"""Nodes of a tree that get children; a cache has as many rows to spare."""


def pair_field(method: MethodConfig) -> str:
    """The pair's field that names what a method drafts with."""
    return method.name if method.name in ("eagle", "medusa") else "drafter"


def drafter_ref(method: MethodConfig, pair: PairConfig) -> str | None:
    """Reference of the draft model or head a method uses."""
    reference: str | None = method.drafter or getattr(pair, pair_field(method))
    return reference


def compared(config: HarnessConfig) -> list[tuple[str, MethodConfig]]:
    """The methods of a cell by their field, without optional ones that the pair or the backend can't run."""
    others = [(f"compare[{index}]", method) for index, method in enumerate(config.compare)]
    kept = [(field, method) for field, method in others if not _left_out(method, config)]
    return [("method", config.method), *kept]


def _left_out(method: MethodConfig, config: HarnessConfig) -> bool:
    if not method.optional:
        return False
    known, backend = find_method(method.name), config.backend.name
    lacks_drafter = known.needs_drafter and drafter_ref(method, config.pair) is None
    lacks_pacing = backend != _BACKEND and bool(pacing_options(method))
    return lacks_drafter or lacks_pacing or backend not in known.backends


def check_pacing(method: MethodConfig, field: str, *, backend: str, longest: int) -> None:
    """Refuse shapes and rules that can't be followed.

    Args:
        method: to check.
        field: where it stands, for messages.
        backend: name of the cell's backend.
        longest: the largest k.

    Raises:
        ConfigError: no tree, a tree, lookup or confidence for a method that has none, a number out of range,
            no such verification, or a backend that would ignore it.
    """
    tree = parse_tree(method.tree, field=f"{field}.tree")
    if tree is not None and method.name not in _DRAFTERS:
        raise ConfigError(f"{field}.tree", f"must be null for {method.name}", method.tree)
    if tree is not None and tree.breadth * (longest - 1) > _MAX_FED:
        raise ConfigError(
            f"{field}.tree.breadth",
            f"times k - 1 must be at most {_MAX_FED}: what a draft feeds",
            tree.breadth,
            "Lower breadth or k.",
        )
    if tree is not None and method.adaptive:
        raise ConfigError(
            f"{field}.adaptive", "must be false for a tree", True, "Leave method.tree out, or adapt no k."
        )
    _check_lookup(method, field)
    _check_confidence(method, field)
    check_verification(method, field)
    for name in ("min_output_tokens", "max_prompt_tokens", "max_batch"):
        value = getattr(method, name)
        if value is not None and value < (0 if name == "min_output_tokens" else 1):
            raise ConfigError(f"{field}.{name}", "must not be negative, and a largest one not 0", value)
    if pacing_options(method) and backend != _BACKEND:
        raise ConfigError(
            f"{field}.{pacing_options(method)[0][0]}",
            f"is for backend.name={_BACKEND} alone",
            backend,
            "Leave tree, lookup, min_confidence, adaptive, rules and typical verification out.",
        )


def _check_lookup(method: MethodConfig, field: str) -> None:
    if not method.lookup:
        return
    if method.lookup < 0:
        raise ConfigError(f"{field}.lookup", "must not be negative", method.lookup)
    if method.name not in _DRAFTERS:
        remedy = f"It goes before {', '.join(_DRAFTERS)}; method=ngram does nothing but copy."
        raise ConfigError(f"{field}.lookup", f"must be 0 for {method.name}", method.lookup, remedy)
    if method.adaptive:
        remedy = "Costs and acceptance of copies and drafts differ: adapt no k, or leave lookup out."
        raise ConfigError(f"{field}.lookup", "must be 0 with adaptive k", method.lookup, remedy)


def _check_confidence(method: MethodConfig, field: str) -> None:
    name, least = f"{field}.min_confidence", method.min_confidence
    if not least:
        return
    if not 0.0 < least < 1.0:
        raise ConfigError(name, "must be a probability below 1, or 0 to draft k tokens always", least)
    if method.name not in _DRAFTERS:
        remedy = f"Only {', '.join(_DRAFTERS)} say how sure they are."
        raise ConfigError(name, f"must be 0 for {method.name}", least, remedy)
    if method.tree is not None:
        remedy = "A tree of {nodes: 8, breadth: 3} grows where the drafter is confident."
        raise ConfigError(name, "must be 0 for a tree", least, remedy)
    if method.adaptive:
        remedy = "Adaptive k reckons with the costs of drafts of full length: choose one of the two."
        raise ConfigError(name, "must be 0 with adaptive k", least, remedy)


def pacing_options(method: MethodConfig) -> tuple[tuple[str, Any], ...]:
    """What a variant carries of how a method drafts and verifies; the last option is its label."""
    options: list[tuple[str, Any]] = []
    labels: list[str] = []
    tree = parse_tree(method.tree, field="method.tree")
    if tree is not None:
        shape = [("tree_parents", tree.parents)] if tree.parents else []
        grown = [("tree_nodes", tree.num_nodes), ("tree_breadth", tree.breadth)]
        options += shape or grown
        labels.append(tree.label)
    if method.lookup:
        options.append(("lookup", method.lookup))
        labels.append(f"lookup{method.lookup}")
    if method.min_confidence:
        options.append(("min_confidence", method.min_confidence))
        labels.append(f"conf{method.min_confidence:g}")
    if method.adaptive:
        options.append(("adaptive", True))
        labels.append("adaptive")
    rules = (("min_output_tokens", "out"), ("max_prompt_tokens", "prompt"), ("max_batch", "batch"))
    for name, short in rules:
        value = getattr(method, name)
        if value:
            options.append((name, value))
            labels.append(f"{short}{value}")
    if is_typical(method):
        options += verification_options(method)
        labels.append(verification_label(method))
    return (*options, ("label", " ".join(labels))) if labels else ()


def longest_draft(method: MethodConfig, k: int) -> int:
    """k, or the depth of the method's tree where that is less."""
    tree = parse_tree(method.tree, field="method.tree")
    return k if tree is None or tree.depth is None else min(k, tree.depth)
