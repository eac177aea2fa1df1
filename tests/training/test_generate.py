from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from engine.random_models import all_logits, random_transformer

from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams
from harness.engine.weights import load_transformer
from harness.training.corpus import Answer
from harness.training.generate import TOP, BatchedGenerator, Request

VOCAB_SIZE = 60


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_transformer(11, vocab_size=VOCAB_SIZE, hidden_size=32, num_layers=2)


def generate(
    model: Transformer, requests: list[Request], *, eos: frozenset[int] = frozenset(), seed: int = 0
) -> list[Answer]:
    generator = BatchedGenerator(
        model, batch=3, max_prompt_tokens=12, max_new_tokens=9, eos_ids=eos, seed=seed
    )
    return list(generator.run(iter(requests)))


def requests(temperature: float, *, count: int = 8) -> list[Request]:
    rng = np.random.default_rng(5)
    return [
        Request(f"task {number}", rng.integers(0, VOCAB_SIZE, size=2 + number).tolist(), temperature)
        for number in range(count)
    ]


def test_greedy_answers_are_the_decoders_token_by_token(model: Transformer) -> None:
    decoder = Decoder(model, cache=model.new_cache(capacity=40))
    asked = requests(0.0)

    def decode(request: Request, eos: frozenset[int]) -> list[int]:
        return decoder.decode(request.tokens, sampling=SamplingParams(), max_new_tokens=9, eos_ids=eos).tokens

    # an end token that some answers reach at different times, and some don't
    eos = frozenset({decode(asked[0], frozenset())[3], decode(asked[4], frozenset())[0]})
    found = generate(model, asked, eos=eos)
    assert len(found) == len(asked)
    for request in asked:
        (one,) = [answer for answer in found if answer.task == request.task]
        assert one.tokens[: one.prompt_tokens].tolist() == request.tokens
        assert one.answer_tokens.tolist() == decode(request, eos)
    assert len({len(one.answer_tokens) for one in found}) > 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_top_probabilities_are_the_models_own(model: Transformer, temperature: float) -> None:
    for one in generate(model, requests(temperature)):
        logits = all_logits(model, torch.from_numpy(one.tokens.astype(np.int64))[None])[0]
        logprobs = logits[one.prompt_tokens - 1 : -1].log_softmax(-1)
        assert one.top_tokens.shape == one.top_logprobs.shape == (len(one.answer_tokens), TOP)
        expected = logprobs.topk(TOP, -1)
        np.testing.assert_allclose(one.top_logprobs, expected.values, rtol=2e-3, atol=2e-3)
        np.testing.assert_array_equal(one.top_tokens[:, 0], expected.indices[:, 0])
        of_the_tokens = logprobs.gather(-1, torch.from_numpy(one.top_tokens.astype(np.int64)))
        np.testing.assert_allclose(one.top_logprobs, of_the_tokens, rtol=2e-3, atol=2e-3)


def test_samples_come_from_the_likeliest_tokens_and_follow_the_seed(model: Transformer) -> None:
    first, again = generate(model, requests(1.0)), generate(model, requests(1.0))
    other = generate(model, requests(1.0), seed=1)
    texts = [[one.tokens.tolist() for one in answers] for answers in (first, again, other)]
    assert texts[0] == texts[1] != texts[2]
    for one in first:
        assert all(token in top for token, top in zip(one.answer_tokens, one.top_tokens, strict=True))


def test_samples_follow_the_models_distribution(model: Transformer) -> None:
    prompt = [5, 6, 7]
    found = generate(model, [Request("chat", prompt, 1.0)] * 1500)
    first = np.bincount([one.answer_tokens[0] for one in found], minlength=VOCAB_SIZE) / 1500
    probs = all_logits(model, torch.tensor([prompt]))[0, -1].softmax(-1)
    top = probs.topk(TOP)
    expected = torch.zeros(VOCAB_SIZE).scatter(0, top.indices, top.values / top.values.sum()).numpy()
    # total variation of 1,500 draws over 32 tokens: about 0.04
    assert np.abs(first - expected).sum() / 2 < 0.08


def test_prompts_that_are_too_long_are_skipped(model: Transformer) -> None:
    long = Request("long", list(range(13)), 0.0)
    found = generate(model, [long, *requests(0.0, count=2), long])
    assert sorted(one.task for one in found) == ["task 0", "task 1"]
    assert generate(model, [long]) == []


def test_fewer_prompts_than_slots(model: Transformer) -> None:
    (one,) = generate(model, requests(0.0, count=1))
    assert len(one.answer_tokens) == 9


def test_a_real_checkpoint_answers_too(make_tiny_llama: Callable[..., Path]) -> None:
    target = load_transformer(make_tiny_llama(), dtype=torch.float32)
    (one,) = generate(target, [Request("chat", [60, 61, 62], 0.0)])
    assert one.temperature == 0.0
    assert len(one.answer_tokens) == 9
