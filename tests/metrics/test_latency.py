from __future__ import annotations

import numpy as np

from harness.metrics import percentiles, time_per_output_token_s, tok_per_s
from harness.metrics.latency import num_decoded_tokens, num_first_tokens


def test_percentiles_sort_and_interpolate() -> None:
    found = percentiles([5.0, 1.0, 4.0, 2.0, 3.0])
    assert found.p50 == 3.0
    assert found.p90 == 4.6
    assert found.p99 == 4.96


def test_percentiles_leave_out_what_was_not_measured() -> None:
    assert percentiles([np.nan, 2.0, np.nan]).p99 == 2.0
    assert percentiles([np.nan]).p50 is None
    assert percentiles([]).p50 is None


def test_time_per_output_token_leaves_the_first_token_to_the_prefill() -> None:
    seconds = time_per_output_token_s([11, 2, 1, 0], [1.0, 0.3, 0.0, 0.0])
    np.testing.assert_allclose(seconds[:2], [0.1, 0.3])
    assert np.isnan(seconds[2:]).all()
    assert num_decoded_tokens([11, 1, 0]).tolist() == [10, 0, 0]


def test_tok_per_s_is_a_ratio_of_sums() -> None:
    assert tok_per_s([10, 90], [1.0, 1.0]) == 50.0
    assert tok_per_s([10, 10], [1.0, 3.0]) == 5.0
    assert tok_per_s([10], [0.0]) is None


def test_a_first_step_that_read_the_prompt_brings_several_first_tokens() -> None:
    assert num_first_tokens(None, 9) == 1
    assert num_first_tokens([], 1) == 1
    assert num_first_tokens([4, 1, 3], 9) == 1  # the prefill brought one more
    assert num_first_tokens([4, 1, 4], 9) == 4
    assert num_decoded_tokens([9, 9, 2], [1, 4, 3]).tolist() == [8.0, 5.0, 0.0]
    assert time_per_output_token_s([9], [1.0], [4]).tolist() == [0.2]
