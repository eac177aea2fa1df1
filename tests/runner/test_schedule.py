from __future__ import annotations

from collections import Counter

from harness.records import Variant
from harness.runner.plan import EncodedPrompt
from harness.runner.schedule import Block, blocks, sequence_seed

VARIANTS = [Variant("autoregressive"), Variant("ngram", 2), Variant("ngram", 4), Variant("ngram", 6)]
PROMPTS = [EncodedPrompt(f"p{number}", "chat", (1, 2, number), 8) for number in range(5)]


def schedule(*, batch_size: int = 1, repeats: int = 3, seed: int = 0) -> list[Block]:
    return list(blocks(PROMPTS, VARIANTS, batch_size=batch_size, repeats=repeats, seed=seed))


def test_every_block_has_every_variant_once() -> None:
    for block in schedule():
        assert Counter(block.order) == Counter(VARIANTS)


def test_every_repeat_passes_over_all_prompts_in_order() -> None:
    found = schedule()
    assert [block.number for block in found] == list(range(15))
    assert [(block.repeat, block.prompts) for block in found] == [
        (repeat, (prompt,)) for repeat in range(3) for prompt in PROMPTS
    ]


def test_batches_do_not_cross_repeats() -> None:
    sizes = [(block.repeat, len(block.prompts)) for block in schedule(batch_size=2, repeats=2)]
    assert sizes == [(0, 2), (0, 2), (0, 1), (1, 2), (1, 2), (1, 1)]


def test_the_same_seed_gives_the_same_orders_and_another_one_others() -> None:
    first, again, other = schedule(), schedule(), schedule(seed=1)
    assert first == again
    assert [block.order for block in first] != [block.order for block in other]


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    assert schedule(repeats=3)[:10] == schedule(repeats=2)


def test_orders_vary_and_no_variant_owns_a_place() -> None:
    found = schedule(repeats=60)
    assert len({block.order for block in found}) > 15
    for variant in VARIANTS:
        places = Counter(block.order.index(variant) for block in found)
        # 300 blocks, 75 expected in each place, standard deviation 7.5
        assert all(45 < places[place] < 105 for place in range(4))


def test_every_sequence_has_a_seed_of_its_own() -> None:
    seeds = [
        sequence_seed(seed, variant, prompt, repeat)
        for seed in (0, 1)
        for variant in VARIANTS
        for prompt in PROMPTS
        for repeat in range(3)
    ]
    assert len(set(seeds)) == len(seeds) == 120
    assert all(0 <= seed < 2**63 for seed in seeds)
    # not small numbers that PyTorch's generator would take for neighbours
    assert sum(seed > 2**62 for seed in seeds) > 30


def test_seeds_are_stable_over_machines_and_releases() -> None:
    # SHA-256 of "0|ngram-k2|p3|1": a changed value would make stored results unrepeatable
    assert sequence_seed(0, VARIANTS[1], PROMPTS[3], 1) == 2327568635722419618
