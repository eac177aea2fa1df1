from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ModelSourceError, WorkloadError
from harness.models.tokenizer import load_tokenizer
from harness.workloads import Message, Prompt


def chat(*turns: tuple[str, str]) -> Prompt:
    return Prompt("p", "chat", tuple(Message(role, content) for role, content in turns), None)


def edit_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_messages_go_through_the_template_and_open_the_answer(make_tiny_llama: Callable[..., Path]) -> None:
    tokenizer = load_tokenizer(make_tiny_llama())
    ids = tokenizer.encode_prompt(chat(("system", "S"), ("user", "hi")))
    # <s>system\nS</s>\n<s>user\nhi</s>\n<s>assistant\n
    assert tokenizer.chat_template
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 3, 2)
    assert tokenizer.decode(ids) == "system\nS\nuser\nhi\nassistant\n"


def test_text_is_encoded_as_it_is(make_tiny_llama: Callable[..., Path]) -> None:
    tokenizer = load_tokenizer(make_tiny_llama())
    text = "def f(x):\n\n  return été"
    assert tokenizer.decode(tokenizer.encode_prompt(Prompt("p", "code", None, text))) == text


def test_without_template_contents_are_joined(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama()
    edit_json(folder / "tokenizer_config.json", chat_template=None)
    tokenizer = load_tokenizer(folder)
    assert not tokenizer.chat_template
    assert tokenizer.decode(tokenizer.encode_prompt(chat(("system", "S"), ("user", "hi")))) == "S\nhi"


def test_refused_roles_and_empty_prompts_are_workload_errors(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama()
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    edit_json(folder / "tokenizer_config.json", chat_template=template)
    tokenizer = load_tokenizer(folder)
    with pytest.raises(WorkloadError, match=r"roles system, user was refused .*no system"):
        tokenizer.encode_prompt(chat(("system", "S"), ("user", "hi")))
    with pytest.raises(WorkloadError, match="encodes to no token"):
        tokenizer.encode_prompt(Prompt("p", "code", None, ""))


def test_all_end_tokens_count(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama(eos_token_id=7)
    edit_json(folder / "generation_config.json", eos_token_id=[5, 6])
    assert load_tokenizer(folder).eos_ids == {2, 5, 6, 7}  # 2 is the tokenizer's own


def test_sizes_and_hash(make_tiny_llama: Callable[..., Path]) -> None:
    first, second = load_tokenizer(make_tiny_llama("a")), load_tokenizer(make_tiny_llama("b", seed=1))
    assert first.vocab_size == 300
    assert first.name_hash == second.name_hash
    folder = make_tiny_llama("c")
    vocabulary = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(vocabulary.replace('"<pad>"', '"<pat>"'))
    edit_json(folder / "tokenizer_config.json", pad_token="<pat>")
    assert load_tokenizer(folder).name_hash != first.name_hash


def test_missing_tokenizer(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama()
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ModelSourceError, match=r"Put tokenizer\.json"):
        load_tokenizer(folder)
