"""Longer prompts: other text before a prompt's own, up to a number of tokens."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

from harness.models.tokenizer import Tokenizer
from harness.workloads import Message, Prompt, Workload


def filled_up(prompt: Prompt, num_tokens: int, *, tokenizer: Tokenizer, filler: Workload) -> Prompt:
    """Put text of another workload before a prompt's own.

    Each prompt gets another part of the filler, never its own text, and always the same.

    Args:
        prompt: left as it is where it has as many tokens already.
        num_tokens: of the whole encoded prompt; met up to the few tokens that joining texts costs or saves.
        tokenizer: of the target.
        filler: where the text comes from; repeated where it is too short.
    """
    missing = num_tokens - len(tokenizer.encode_prompt(prompt))
    if missing <= 0:
        return prompt
    texts = [other.content for other in filler.prompts if other.content != prompt.content]
    start = crc32(prompt.id.encode()) % len(texts) if texts else 0
    tokens: list[int] = []
    while len(tokens) < missing:
        text = "\n\n".join(texts[start:] + texts[:start]) or prompt.content
        tokens += tokenizer.encode_text(text)
    return _with_text_before(prompt, tokenizer.decode(tokens[:missing]))


def _with_text_before(prompt: Prompt, text: str) -> Prompt:
    if prompt.messages is None:
        return replace(prompt, text=f"{text}\n\n{prompt.text}")
    *earlier, last = prompt.messages
    return replace(prompt, messages=(*earlier, Message(last.role, f"{text}\n\n{last.content}")))
