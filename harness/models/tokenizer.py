"""A model's tokenizer: prompts to token ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import ModelSourceError, WorkloadError
from harness.models.checkpoint import read_config, read_json_object

if TYPE_CHECKING:
    from harness.workloads import Prompt


class Tokenizer:
    """Encodes prompts the way the model was trained to read them."""

    def __init__(self, backend: Any, path: Path) -> None:
        """Wrap a Transformers tokenizer that was loaded from `path`."""
        self._backend, self._path = backend, path
        self.eos_ids: frozenset[int] = end_token_ids(path) | _one_id(backend.eos_token_id)
        self.vocab_size: int = len(backend)

    @property
    def chat_template(self) -> bool:
        """Whether messages go through a chat template; without one their contents are joined by newlines."""
        return self._backend.chat_template is not None

    @property
    def name_hash(self) -> str:
        """Hash of all (id, token) pairs: equal for tokenizers with the same vocabulary."""
        pairs = sorted((index, token) for token, index in self.vocabulary().items())
        return hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, ready for the model to continue.

        Args:
            prompt: with `messages` (rendered by the chat template, the assistant's turn opened) or `text`.

        Raises:
            WorkloadError: the chat template refuses the messages, or nothing is left to encode.
        """
        if prompt.messages is None:
            ids = self._backend.encode(prompt.text or "")
        elif self.chat_template:
            ids = self._encode_chat([{"role": m.role, "content": m.content} for m in prompt.messages])
        else:
            ids = self._backend.encode("\n".join(message.content for message in prompt.messages))
        if not ids:
            raise WorkloadError(
                f"a prompt encodes to no token with the tokenizer of {self._path}. Remove it."
            )
        return [int(token) for token in ids]

    def encode_user_text(self, text: str) -> list[int]:
        """Token ids of a conversation that is one user turn, the assistant's turn opened."""
        return self._encode_chat([{"role": "user", "content": text}])

    def render_user_text(self, text: str, *, system: str | None = None) -> str:
        """What the chat template makes of one user turn, after a system turn where one is given."""
        messages = [{"role": "user", "content": text}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        return str(self._backend.apply_chat_template(messages, tokenize=False))

    def encode_text(self, text: str) -> list[int]:
        """Token ids of text that already holds its special tokens."""
        return [int(token) for token in self._backend.encode(text, add_special_tokens=False)]

    def vocabulary(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        return dict(self._backend.get_vocab())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def _encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        from jinja2 import TemplateError

        try:
            ids: list[int] = self._backend.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise WorkloadError(
                f"a prompt with the roles {roles} was refused by the chat template of {self._path} "
                f"({error}). Change its roles, or give it as text."
            ) from error
        return ids


def load_tokenizer(path: Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint folder; code from the folder is never run.

    Raises:
        ModelSourceError: the folder has no tokenizer that Transformers can read.
    """
    from transformers import AutoTokenizer

    try:
        return Tokenizer(AutoTokenizer.from_pretrained(path, trust_remote_code=False), path)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise ModelSourceError(
            f"{path}: its tokenizer can't be loaded ({type(error).__name__}: {error}). Put tokenizer.json "
            "and tokenizer_config.json into the folder."
        ) from error


def end_token_ids(path: Path) -> frozenset[int]:
    """Every token id that `generation_config.json` or `config.json` calls an end of sequence."""
    ids = _ids(read_config(path).get("eos_token_id"))
    file = path / "generation_config.json"
    return ids | _ids(read_json_object(file).get("eos_token_id")) if file.is_file() else ids


def _ids(value: object) -> frozenset[int]:
    if isinstance(value, list):
        return frozenset(int(token) for token in value)
    return _one_id(value)


def _one_id(value: object) -> frozenset[int]:
    return frozenset({value}) if isinstance(value, int) else frozenset()
