"""Expand a cell's methods into variants, the baseline first."""

from __future__ import annotations

from typing import Any

from harness.config.pacing import compared, drafter_ref, longest_draft, pacing_options
from harness.config.schema import HarnessConfig, MethodConfig
from harness.config.validate import k_values
from harness.config.verification import is_typical
from harness.errors import ConfigError
from harness.records import BASELINE_METHOD, Variant
from harness.registry import find_method


def variants_of(config: HarnessConfig) -> list[Variant]:
    """Every variant a cell measures: `autoregressive` always, then method by method, k by k.

    Raises:
        ConfigError: two variants would have the same name.
    """
    variants = [Variant(BASELINE_METHOD)]
    for field, method in compared(config):
        if not find_method(method.name).drafts:
            continue
        variants += [_variant(method, k, config) for k in k_values(method, field=field)]
    names = [variant.variant_id for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("compare", "must not repeat a variant", name, "Leave one of the two out.")
    return variants


def _variant(method: MethodConfig, k: int, config: HarnessConfig) -> Variant:
    pacing, k = pacing_options(method), longest_draft(method, k)
    if find_method(method.name).needs_drafter:
        drafter = drafter_ref(method, config.pair)
        options: tuple[tuple[str, Any], ...] = (
            ("draft_sampling", method.draft_sampling),
            ("draft_vocab", method.draft_vocab),
        )
    else:
        drafter = None
        options = (("min_ngram", method.min_ngram), ("max_ngram", method.max_ngram))
    by_batch = () if method.k_by_batch is None else (("k_by_batch", method.k_by_batch),)
    forced: tuple[tuple[str, Any], ...] = ()
    if method.name == "synthetic":
        given = method.acceptance if isinstance(method.acceptance, list | tuple) else [method.acceptance]
        forced = (("acceptance", tuple(map(float, given))),)
    by_lot = config.vllm is not None and config.vllm.rejection_sample_method == "synthetic"
    lossless = not forced and not by_lot and not is_typical(method)
    return Variant(method.name, k, drafter, (*options, *pacing, *by_batch, *forced), lossless=lossless)
