"""What quantising a target costs in quality, on a fixed text that no model here was trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from harness.config.identity import code_version
from harness.engine.model import Transformer
from harness.engine.reading import Reading, read_text
from harness.models.checkpoint import ResolvedModel
from harness.models.tokenizer import load_tokenizer
from harness.paths import assets_dir, cache_dir

TEXT_FILE = "held_out.txt"
MOST_TOKENS = 1024
UNQUANTIZED = "none"


def quality_facts(
    model: ResolvedModel,
    quantized: Transformer,
    scheme: str,
    load_unquantized: Callable[[], Transformer],
) -> dict[str, Any]:
    """Read the held-out text with a quantised model and with its original, and compare.

    Readings are cached by model, scheme, dtype, device and code, so that a scheme is read once.

    Args:
        model: the checkpoint.
        quantized: loaded with `scheme`.
        scheme: how it is quantised.
        load_unquantized: loads the original; called only where its reading isn't cached.

    Returns:
        `perplexity`, `perplexity_unquantized`, `perplexity_change` (a share), `greedy_agreement`,
        `num_tokens`, and `seconds` that all of it took now.
    """
    start = perf_counter()
    text = (assets_dir() / TEXT_FILE).read_text(encoding="utf-8")
    tokens = load_tokenizer(model.path).encode_text(text)
    tokens = tokens[: min(MOST_TOKENS, quantized.architecture.max_positions)]
    versions = (torch.__version__, code_version())

    def reading(of_scheme: str, load: Callable[[], Transformer]) -> Reading:
        key = (model.revision, of_scheme, quantized.dtype, quantized.device, *versions, tokens)
        return _cached(key, lambda: read_text(load(), tokens))

    ours, original = reading(scheme, lambda: quantized), reading(UNQUANTIZED, load_unquantized)
    return {
        "perplexity": ours.perplexity,
        "perplexity_unquantized": original.perplexity,
        "perplexity_change": ours.perplexity / original.perplexity - 1,
        "greedy_agreement": ours.agreement(original),
        "num_tokens": len(tokens),
        "seconds": perf_counter() - start,
    }


def _cached(key: tuple[object, ...], read: Callable[[], Reading]) -> Reading:
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
    file = cache_dir() / "readings" / f"{name}.json"
    try:
        return Reading(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        found = read()
    _store(file, found)
    return found


def _store(file: Path, reading: Reading) -> None:
    """Keep a reading; a cache that can't be written only means reading again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(reading)), encoding="utf-8")
        partial.replace(file)
    except OSError:
        return
