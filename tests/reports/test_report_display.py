from __future__ import annotations

import math

import pytest

from harness.privacy import clean, clipped, without_private
from harness.reports import display
from harness.reports.labels import cell_labels, in_reading_order


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0000123, "12.3 us"),
        (0.0042, "4.20 ms"),
        (0.4567, "457 ms"),
        (12.34, "12.3 s"),
        (600, "10.0 min"),
        (0, "0 s"),
        (None, display.MISSING),
        (math.nan, display.MISSING),
    ],
)
def test_seconds_choose_their_unit(value: object, text: str) -> None:
    assert display.seconds(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.53x [1.47, 1.60]", 1.53),
        ("62%", 0.62),
        ("-0.5%", -0.005),
        ("4.20 ms", 0.0042),
        ("10.0 min", 600.0),
        ("12,345", 12345.0),
        ("1.50 GiB", 1.5 * 2**30),
        ("3 of 8", 3.0),
        ("< 0.0001", 0.0001),
        ("3.1 s to 4 s", 3.1),
        ("baseline", None),
        (display.MISSING, None),
        ("", None),
    ],
)
def test_a_quantity_is_the_number_that_a_text_starts_with(text: str, value: float | None) -> None:
    assert display.quantity(text) == (None if value is None else pytest.approx(value))


def test_numbers_are_written_one_way() -> None:
    assert display.with_interval((1.526, 1.47, 1.6), display.ratio) == "1.53x [1.47, 1.60]"
    assert display.with_interval((0.5, 0.4, 0.61), display.percent) == "50% [40, 61]"
    assert display.with_interval((1.5, None, math.nan), display.ratio) == "1.50x"
    assert display.with_interval((None, 1.0, 2.0), display.ratio) == display.MISSING
    assert display.percent(0.004) == "0.4%"
    assert display.percent(0.996) == "99.6%"
    assert display.percent(1.0) == "100%"
    assert display.rate(1234.5) == "1,234"
    assert display.rate(48.49) == "48.5"
    assert display.size(640_000_000) == "610 MiB"
    assert display.size(3) == "3 B"
    assert display.milliseconds(0.0203) == "20.3"
    assert display.fact(None) == "none"
    assert display.fact(0.70) == "0.7"
    assert display.number(True) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/srv/x/site-packages/torch/nn.py", line 3', 'File "torch/nn.py", line 3'),
        ('File "/srv/x/lib/python3.11/json/decoder.py"', 'File "json/decoder.py"'),
        ('File "/srv/app/harness/runner/cell.py"', 'File "harness/runner/cell.py"'),
        ("no /data/models/target.gguf here", "no …/target.gguf here"),
        ("path:/home/jane/m and path:models/m", "path:…/m and path:models/m"),
        ("'/home/jane doe/a b/model.bin' gone", "'…/model.bin' gone"),
        (r"C:\Users\jane\model.bin", "…/model.bin"),
        ("~/models/target", "…/target"),
        ("file:///home/jane/x.json", "…/x.json"),
        ("-I/home/jane/include", "-I…/include"),
        ("12 tok/s, and/or 3/4", "12 tok/s, and/or 3/4"),
        ("hub:Qwen/Qwen2.5-7B", "hub:Qwen/Qwen2.5-7B"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
    ],
)
def test_absolute_paths_are_shortened_and_nothing_else(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_machine_and_user_names_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness import privacy

    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "gpu-box-17.corp")
    monkeypatch.setattr(privacy.getpass, "getuser", lambda: "janedoe")
    privacy._machine_names.cache_clear()
    try:
        assert (
            clean("janedoe at gpu-box-17.corp and gpu-box-17:8000, not janedoes")
            == "… at … and …:8000, not janedoes"
        )
    finally:
        privacy._machine_names.cache_clear()
    assert without_private({"Hostname": "a", "cpu": "b"}) == {"cpu": "b"}


def test_control_characters_and_lengths() -> None:
    assert clean("a\x00b\u202ec") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert clipped("line one\n  line two", 100) == "line one line two"
    assert len(clipped("x" * 500, 40)) == 40
    assert "left out" in clean("y" * 30_000)


def test_cells_are_named_by_what_differs() -> None:
    base = {"backend": "native", "temperature": 0.0, "batch_size": 1}
    cells = [
        base | {"cell_id": "a", "temperature": 1.0},
        base | {"cell_id": "b"},
        base | {"cell_id": "c", "batch_size": 16},
        base | {"cell_id": "d", "batch_size": 4},
    ]
    assert cell_labels(cells)["c"] == "batch 16 · temperature 0"
    assert [cell["cell_id"] for cell in in_reading_order(cells)] == ["b", "a", "d", "c"]
    assert cell_labels([base | {"cell_id": "a"}]) == {"a": "this cell"}
    twins = cell_labels([base | {"cell_id": "aaaaaaaaaa"}, base | {"cell_id": "bbbbbbbbbb"}])
    assert len(set(twins.values())) == 2
    revisions = [base | {"cell_id": str(i), "target_revision": f"r{i}"} for i in range(2)]
    assert cell_labels(revisions) == {"0": "revision r0", "1": "revision r1"}
