from __future__ import annotations

import math

import pandas as pd
import pyarrow as pa

from harness.results.derived import joined


def table(**columns: object) -> pa.Table:
    return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)


def test_a_column_without_values_takes_the_type_it_has_elsewhere() -> None:
    empty = table(cell_id=["a"], remedy=[math.nan], speed=[1.0])
    told = table(cell_id=["b"], remedy=["more prompts"], speed=[2.0])
    for order in ([empty, told], [told, empty]):
        frame = joined(order).set_index("cell_id")
        assert frame.loc["b", "remedy"] == "more prompts"
        assert pd.isna(frame.loc["a", "remedy"])
        assert frame["speed"].to_dict() == {"a": 1.0, "b": 2.0}


def test_numbers_without_values_stay_numbers() -> None:
    frame = joined([table(x=[math.nan]), table(x=[math.nan])])
    assert frame["x"].dtype == float
    assert joined([table(x=[1.0])[:0], table(x=[2.0])])["x"].tolist() == [2.0]
