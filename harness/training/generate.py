"""Let the target answer many prompts at once, keeping its top probabilities for distillation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from harness.engine.model import Transformer
from harness.training.corpus import Answer

TOP = 32


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to answer: its task, ids and sampling temperature."""

    task: str
    tokens: list[int]
    temperature: float


@dataclass(slots=True)
class _Slot:
    request: Request
    tokens: list[int] = field(default_factory=list)
    top_tokens: list[Tensor] = field(default_factory=list)
    top_logprobs: list[Tensor] = field(default_factory=list)

    def answer(self) -> Answer:
        """What was written, with what the target thought of each token."""
        prompt = self.request.tokens
        return Answer(
            task=self.request.task,
            temperature=self.request.temperature,
            prompt_tokens=len(prompt),
            tokens=np.array(prompt + self.tokens, dtype=np.int32),
            top_tokens=torch.stack(self.top_tokens).numpy().astype(np.int32),
            top_logprobs=torch.stack(self.top_logprobs).numpy().astype(np.float16),
        )


class BatchedGenerator:
    """Continuous batching: a finished sequence's slot takes the next prompt at once.

    Sampling is restricted to the target's `TOP` likeliest tokens, which keeps the text on track and
    costs no pass over the vocabulary.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        batch: int,
        max_prompt_tokens: int,
        max_new_tokens: int,
        eos_ids: frozenset[int],
        seed: int,
    ) -> None:
        """Allocate the cache; prompts longer than `max_prompt_tokens` are skipped when they come."""
        self._model = model
        self._max_prompt, self._max_new = max_prompt_tokens, max_new_tokens
        self._eos = eos_ids
        self._generator = torch.Generator().manual_seed(seed)
        self._cache = model.new_cache(batch=batch, capacity=max_prompt_tokens + max_new_tokens + 1)

    @torch.inference_mode()
    def run(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """Answer every request, in the order they finish."""
        slots: list[_Slot] = []
        hidden: list[Tensor] = []
        for row in range(self._cache.batch):
            started = self._start(requests, row)
            if started is None:
                break
            slots.append(started[0])
            hidden.append(started[1])
        while slots:
            self._emit(slots, torch.stack(hidden))
            for row in reversed(range(len(slots))):
                while row < len(slots) and self._finished(slots[row]):
                    yield slots[row].answer()
                    self._refill(requests, slots, row)
            if slots:
                hidden = self._step(slots)

    def _start(self, requests: Iterator[Request], row: int) -> tuple[_Slot, Tensor] | None:
        for request in requests:
            if len(request.tokens) > self._max_prompt:
                continue
            view = self._cache.rows(row, row + 1)
            view.lengths = [0]
            hidden = self._model.prefill(torch.tensor([request.tokens]), view)[0]
            self._cache.lengths[row] = len(request.tokens)
            return _Slot(request), hidden
        return None

    def _refill(self, requests: Iterator[Request], slots: list[_Slot], row: int) -> None:
        started = self._start(requests, row)
        if started is None:
            # No prompt left: the last slot moves here, and the batch shrinks by one.
            last = len(slots) - 1
            if row != last:
                for tensors in (self._cache.keys, self._cache.values):
                    for tensor in tensors:
                        tensor[row] = tensor[last]
                self._cache.lengths[row] = self._cache.lengths[last]
                slots[row] = slots[last]
            slots.pop()
            return
        slots[row] = started[0]
        self._emit([started[0]], started[1][None])

    def _step(self, slots: list[_Slot]) -> list[Tensor]:
        size = len(slots)
        cache = self._cache.rows(0, size)
        tokens = torch.tensor([[slot.tokens[-1]] for slot in slots])
        hidden = self._model.forward(tokens, cache)[:, 0]
        for row in range(size):
            self._cache.lengths[row] += 1
        return list(hidden)

    def _emit(self, slots: list[_Slot], hidden: Tensor) -> None:
        logits = self._model.head(hidden).float()
        top = logits.topk(TOP, -1)
        logprobs = top.values - logits.logsumexp(-1, keepdim=True)
        temperatures = torch.tensor([[slot.request.temperature] for slot in slots])
        scaled = top.values / temperatures.clamp(min=1e-3)
        picks = torch.multinomial(scaled.softmax(-1), 1, generator=self._generator)
        picks = torch.where(temperatures == 0, 0, picks)
        tokens = top.indices.gather(1, picks)[:, 0].tolist()
        for row, slot in enumerate(slots):
            slot.tokens.append(tokens[row])
            slot.top_tokens.append(top.indices[row])
            slot.top_logprobs.append(logprobs[row])

    def _finished(self, slot: _Slot) -> bool:
        return slot.tokens[-1] in self._eos or len(slot.tokens) >= self._max_new
