from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ModelSourceError, PairMismatchError
from harness.models.pair_check import PairFacts, check_pair
from harness.models.sources import resolve_model


def check(target: Path, drafter: Path) -> PairFacts:
    return check_pair(resolve_model(f"path:{target}"), resolve_model(f"path:{drafter}"))


def edit_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def edit_vocabulary(folder: Path, **swaps: str) -> None:
    """Rename tokens in the model's vocabulary, ids kept."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] = {swaps.get(t, t): i for t, i in tokenizer["model"]["vocab"].items()}
    tokenizer["model"]["merges"] = []
    file.write_text(json.dumps(tokenizer))


def test_twins_fit_without_notes(make_tiny_llama: Callable[..., Path]) -> None:
    facts = check(make_tiny_llama("a"), make_tiny_llama("b", num_layers=1))
    assert facts == PairFacts(
        vocab_size=300,
        target_padded_vocab=300,
        drafter_padded_vocab=300,
        eos_ids=frozenset({2}),
        pad_id=0,
        max_context_tokens=256,
        notes=(),
    )


def test_equal_sizes_with_other_tokens_are_refused(
    make_tiny_llama: Callable[..., Path], tiny_tokens: tuple[list[str], Any]
) -> None:
    target, drafter = make_tiny_llama("a"), make_tiny_llama("b")
    first, second = tiny_tokens[0][50], tiny_tokens[0][60]
    edit_vocabulary(drafter, **{first: second, second: first})
    with pytest.raises(PairMismatchError) as caught:
        check(target, drafter)
    message = str(caught.value)
    assert f"path:{target}" in message
    assert f"path:{drafter}" in message
    assert f"2 of 300 tokens differ; the first is id 50, {first!r} in the target and {second!r}" in message
    assert "Choose a drafter" in message


def test_two_versions_of_one_family_are_told_apart(make_tiny_llama: Callable[..., Path]) -> None:
    # as Qwen2.5 and Qwen2: one model_type, one base vocabulary, padded alike, more special tokens in one
    newer, older = make_tiny_llama("newer", vocab_size=320), make_tiny_llama("older", vocab_size=320)
    file = newer / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    token = {**tokenizer["added_tokens"][0], "id": 300, "content": "<tool_call>"}
    tokenizer["added_tokens"].append(token)
    file.write_text(json.dumps(tokenizer))
    for target, drafter in ((newer, older), (older, newer)):
        with pytest.raises(PairMismatchError) as caught:
            check(target, drafter)
        assert "1 of 301 tokens differ; the first is id 300" in str(caught.value)
        assert "two versions of one family" in str(caught.value)


def test_missing_token_is_named(make_tiny_llama: Callable[..., Path]) -> None:
    target, drafter = make_tiny_llama("a"), make_tiny_llama("b")
    file = drafter / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    last = max(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    del tokenizer["model"]["vocab"][last]
    tokenizer["model"]["merges"] = []
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(PairMismatchError, match=f"id 299, '{last}' in the target and absent in the drafter"):
        check(target, drafter)


def test_padding_of_the_vocabulary_may_differ(make_tiny_llama: Callable[..., Path]) -> None:
    facts = check(make_tiny_llama("a", vocab_size=320), make_tiny_llama("b"))
    assert (facts.vocab_size, facts.target_padded_vocab, facts.drafter_padded_vocab) == (300, 320, 300)
    assert facts.notes == ("padded vocabularies differ: 320 and 300 embedding rows",)


def test_tokens_without_embedding_are_refused(make_tiny_llama: Callable[..., Path]) -> None:
    with pytest.raises(PairMismatchError, match="vocab_size 290 but its tokenizer has 300 tokens"):
        check(make_tiny_llama("a"), make_tiny_llama("b", vocab_size=290))


def test_shorter_drafter_context_is_reported(make_tiny_llama: Callable[..., Path]) -> None:
    facts = check(make_tiny_llama("a"), make_tiny_llama("b", max_position_embeddings=128))
    assert facts.max_context_tokens == 128
    assert facts.notes == ("the drafter ends at 128 tokens, the target at 256",)


def test_special_tokens(make_tiny_llama: Callable[..., Path]) -> None:
    target, drafter = make_tiny_llama("a"), make_tiny_llama("b")
    edit_json(drafter / "tokenizer_config.json", pad_token="</s>")
    edit_json(drafter / "generation_config.json", eos_token_id=[2, 9])
    facts = check(target, drafter)
    assert (facts.pad_id, facts.eos_ids) == (0, {2})
    assert facts.notes == (
        "end tokens differ: [2] and [2, 9]; the target's count",
        "pad ids differ: 0 and 2; the target's is used",
    )
    edit_json(drafter / "tokenizer_config.json", bos_token="</s>")
    with pytest.raises(PairMismatchError, match="BOS is id 1 and id 2"):
        check(target, drafter)


def test_no_common_end_token_is_refused(make_tiny_llama: Callable[..., Path]) -> None:
    target, drafter = make_tiny_llama("a"), make_tiny_llama("b", eos_token_id=7)
    edit_json(drafter / "tokenizer_config.json", eos_token=None)
    with pytest.raises(PairMismatchError, match=r"no end token in common, \[2\] and \[7\]"):
        check(target, drafter)


def test_unreadable_tokenizer_is_named(make_tiny_llama: Callable[..., Path]) -> None:
    target = make_tiny_llama("a")
    (target / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelSourceError, match=r"tokenizer\.json: isn't a readable tokenizer"):
        check(target, target)
