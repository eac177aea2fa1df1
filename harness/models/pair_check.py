"""Whether a drafter's tokens mean the same to its target, from configuration and tokenizer files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelSourceError, PairMismatchError
from harness.models.checkpoint import ResolvedModel, read_config, read_json_object
from harness.models.tokenizer import end_token_ids, load_tokenizer

_REMEDY = "Choose a drafter of the target's family and version, or train one for it."


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What a pair that may speculate together has in common.

    Attributes:
        vocab_size: tokens of the shared tokenizer.
        target_padded_vocab: rows of the target's embeddings.
        drafter_padded_vocab: rows of the drafter's; ids past `vocab_size` are padding in both.
        eos_ids: end tokens of the target, the ones that count.
        pad_id: the target's pad token, if any.
        max_context_tokens: the shorter of the two context lengths; `None` when neither states one.
        notes: harmless differences, in words.
    """

    vocab_size: int
    target_padded_vocab: int
    drafter_padded_vocab: int
    eos_ids: frozenset[int]
    pad_id: int | None
    max_context_tokens: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """One half of a pair, as its files describe it."""

    model: ResolvedModel
    tokens: tuple[str | None, ...]
    special: dict[str, int | None]
    eos_ids: frozenset[int]


def check_pair(target: ResolvedModel, drafter: ResolvedModel) -> PairFacts:
    """Compare two models before any weight is loaded.

    Args:
        target: the model whose output counts.
        drafter: a stand-alone model that proposes tokens.

    Returns:
        The pair's shared facts.

    Raises:
        PairMismatchError: a token, BOS or every end token differs, or an embedding table is too small.
        ModelSourceError: a tokenizer file is missing or unreadable.
    """
    first, second = _read_side(target), _read_side(drafter)
    _check_tokens(first, second)
    for side in (first, second):
        _check_embedding_rows(side)
    _check_special_ids(first, second)
    lengths = [
        f.max_context_tokens for f in (target.facts, drafter.facts) if f.max_context_tokens is not None
    ]
    return PairFacts(
        vocab_size=len(first.tokens),
        target_padded_vocab=target.facts.vocab_size,
        drafter_padded_vocab=drafter.facts.vocab_size,
        eos_ids=first.eos_ids,
        pad_id=first.special["pad"],
        max_context_tokens=min(lengths, default=None),
        notes=_notes(first, second),
    )


def check_head_pair(target: ResolvedModel, head: ResolvedModel) -> None:
    """Compare a target with a head on its hidden states, before any weight is loaded.

    A head has no tokenizer of its own: it reads what the target computed, and speaks in its tokens.

    Args:
        target: the model whose output counts.
        head: an EAGLE or Medusa head.

    Raises:
        PairMismatchError: made for hidden states or a vocabulary of another size.
    """
    for field in ("hidden_size", "vocab_size"):
        expected, received = getattr(target.facts, field), getattr(head.facts, field)
        if expected != received:
            raise PairMismatchError(
                f"{target.ref} and {head.ref}: {field} is {expected} in the target and {received} in the "
                "head. Choose a head of this target, or train one with `python -m harness train`."
            )


def _check_tokens(target: _Side, drafter: _Side) -> None:
    if target.tokens == drafter.tokens:
        return
    longest = max(len(target.tokens), len(drafter.tokens))
    differing = [i for i in range(longest) if _token(target, i) != _token(drafter, i)]
    index = differing[0]
    raise PairMismatchError(
        f"{_names(target, drafter)}: {len(differing)} of {longest} tokens differ; the first is id {index}, "
        f"{_shown(target, index)} in the target and {_shown(drafter, index)} in the drafter."
        f"{_version_hint(target, drafter, differing)} {_REMEDY}"
    )


def _version_hint(target: _Side, drafter: _Side, differing: list[int]) -> str:
    """What to suspect where one vocabulary only goes on where the other ends."""
    is_continued = differing[0] >= min(len(target.tokens), len(drafter.tokens))
    if not is_continued or target.model.facts.model_type != drafter.model.facts.model_type:
        return ""
    return (
        f" Both call themselves {target.model.facts.model_type!r} and share all tokens before it: two "
        "versions of one family, as Qwen2.5 and Qwen2 are."
    )


def _check_embedding_rows(side: _Side) -> None:
    rows = side.model.facts.vocab_size
    if rows < len(side.tokens):
        raise PairMismatchError(
            f"{side.model.ref}: config.json states vocab_size {rows} but its tokenizer has "
            f"{len(side.tokens)} tokens, so some have no embedding. Use the tokenizer the model was trained "
            "with."
        )


def _check_special_ids(target: _Side, drafter: _Side) -> None:
    ours, theirs = target.special["bos"], drafter.special["bos"]
    if None not in (ours, theirs) and ours != theirs:
        raise PairMismatchError(f"{_names(target, drafter)}: BOS is id {ours} and id {theirs}. {_REMEDY}")
    if target.eos_ids and drafter.eos_ids and not target.eos_ids & drafter.eos_ids:
        raise PairMismatchError(
            f"{_names(target, drafter)}: no end token in common, {sorted(target.eos_ids)} and "
            f"{sorted(drafter.eos_ids)}, so the drafter would run past every end. {_REMEDY}"
        )


def _notes(target: _Side, drafter: _Side) -> tuple[str, ...]:
    ours, theirs = target.model.facts, drafter.model.facts
    notes = []
    if ours.model_type != theirs.model_type:
        notes.append(f"families differ: {ours.model_type} and {theirs.model_type}")
    if ours.vocab_size != theirs.vocab_size:
        notes.append(f"padded vocabularies differ: {ours.vocab_size} and {theirs.vocab_size} embedding rows")
    if target.eos_ids != drafter.eos_ids:
        notes.append(
            f"end tokens differ: {sorted(target.eos_ids)} and {sorted(drafter.eos_ids)}; the target's count"
        )
    if target.special["pad"] != drafter.special["pad"]:
        notes.append(
            f"pad ids differ: {target.special['pad']} and {drafter.special['pad']}; the target's is used"
        )
    if (
        theirs.max_context_tokens
        and ours.max_context_tokens
        and theirs.max_context_tokens < ours.max_context_tokens
    ):
        notes.append(
            f"the drafter ends at {theirs.max_context_tokens} tokens, the target at {ours.max_context_tokens}"
        )
    return tuple(notes)


def _names(target: _Side, drafter: _Side) -> str:
    return f"target {target.model.ref} and drafter {drafter.model.ref}"


def _token(side: _Side, index: int) -> str | None:
    return side.tokens[index] if index < len(side.tokens) else None


def _shown(side: _Side, index: int) -> str:
    token = _token(side, index)
    return "absent" if token is None else repr(token)


def _read_side(model: ResolvedModel) -> _Side:
    path = model.path
    vocabulary = _read_vocabulary(path)
    size = max(vocabulary.values(), default=-1) + 1
    tokens: list[str | None] = [None] * size
    for token, index in vocabulary.items():
        tokens[index] = token
    special = {name: _special_id(path, name, vocabulary) for name in ("bos", "eos", "pad")}
    own_eos = special["eos"]
    eos_ids = end_token_ids(path) | (frozenset() if own_eos is None else {own_eos})
    return _Side(model, tuple(tokens), special, eos_ids)


def _read_vocabulary(path: Path) -> dict[str, int]:
    file = path / "tokenizer.json"
    if not file.is_file():
        return load_tokenizer(path).vocabulary()  # SentencePiece only: Transformers must convert it
    from tokenizers import Tokenizer

    try:
        return dict(Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True))
    except Exception as error:  # the Rust binding raises no narrower class
        raise ModelSourceError(f"{file}: isn't a readable tokenizer ({error}). Fetch it again.") from error


def _special_id(path: Path, name: str, vocabulary: dict[str, int]) -> int | None:
    """The id of a special token: what the tokenizer's settings say, else the model's configuration."""
    file = path / "tokenizer_config.json"
    settings: dict[str, Any] = read_json_object(file) if file.is_file() else {}
    token = settings.get(f"{name}_token")
    text = token.get("content") if isinstance(token, dict) else token
    if text in vocabulary:
        return vocabulary[text]
    value = read_config(path).get(f"{name}_token_id")
    return value if isinstance(value, int) else None
