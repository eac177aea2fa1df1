from __future__ import annotations

import pytest

from harness.cli.compose import compose_cells
from harness.config.schema import HarnessConfig
from harness.config.simulated import FailureConfig, SimulatorConfig, TaskConfig
from harness.config.store import register_schemas
from harness.config.variants import variants_of
from harness.errors import ConfigError
from harness.runner.plan import plan_cell


@pytest.fixture(autouse=True)
def _schemas() -> None:
    register_schemas()


def one(*overrides: str) -> HarnessConfig:
    (cell,) = compose_cells(overrides)
    return cell


def simulator(*overrides: str) -> SimulatorConfig:
    found = one("backend=simulator", *overrides).simulator
    assert found is not None
    return found


def refusal(*overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        compose_cells(overrides)
    assert "\n" not in str(caught.value)
    return caught.value


def test_other_backends_have_no_simulator() -> None:
    assert one().simulator is None


def test_the_backend_brings_its_settings() -> None:
    cell = one("backend=simulator")
    assert (cell.backend.name, cell.pair.name) == ("simulator", "smollm2-135m")
    assert simulator().draft_model.alpha == 0.7


def test_values_and_lists_replace_the_settings() -> None:
    found = simulator(
        "simulator.draft_model.alpha=[0.9,0.5]",
        "simulator.ngram.empty=0.25",
        "simulator.tasks=[{name: code, alpha_offset: 0.1}]",
        "simulator.failures=[{variant: ngram-k2, call: 3}, {out_of_memory: true}]",
    )
    assert found.draft_model.alpha == [0.9, 0.5]
    assert found.draft_model.cost == simulator().draft_model.cost
    assert found.ngram.empty == 0.25
    assert found.tasks == [TaskConfig("code", 0.1)]
    assert found.failures == [FailureConfig("ngram-k2", 3), FailureConfig(out_of_memory=True)]


def test_alpha_can_be_swept() -> None:
    cells = compose_cells(["backend=simulator", "simulator.draft_model.alpha=0.5,0.8"], multirun=True)
    assert [cell.simulator and cell.simulator.draft_model.alpha for cell in cells] == [0.5, 0.8]


@pytest.mark.parametrize(
    ("override", "field", "says"),
    [
        ("simulator.step=1", "simulator.step", "Did you mean 'simulator.step_s'"),
        ("+simulator.step=1", "simulator.step", "Did you mean 'step_s'"),
        ("simulator.ngram.aplha=1", "simulator.ngram.aplha", "Did you mean 'simulator.ngram.alpha'"),
        ("+simulator.ngram.aplha=1", "simulator.ngram.aplha", "Did you mean 'alpha'"),
        ("simulator.tasks=[{nam: a}]", "simulator.tasks[].nam", "Did you mean 'simulator.tasks[].name'"),
        ("simulator.failures=[{cal: 1}]", "simulator.failures[].cal", "'simulator.failures[].call'"),
        ("simulator.step_s=0", "simulator.step_s", "a finite number, above 0, got 0.0"),
        ("simulator.step_s=nan", "simulator.step_s", "above 0, got nan"),
        ("simulator.step_s=x", "simulator.step_s", "could not be converted to Float"),
        ("simulator.outlier_factor=0", "simulator.outlier_factor", "above 0"),
        ("simulator.step_noise=-1", "simulator.step_noise", "at least 0, got -1.0"),
        ("simulator.drift_per_hour=-1", "simulator.drift_per_hour", "at least 0"),
        ("simulator.seed=-1", "simulator.seed", "at least 0"),
        ("simulator.eos_probability=1.1", "simulator.eos_probability", "at least 0 and at most 1, got 1.1"),
        ("simulator.prompt_spread=1", "simulator.prompt_spread", "at most 0.9, got 1.0"),
        ("simulator.ngram.empty=2", "simulator.ngram.empty", "at most 1"),
        ("simulator.ngram.cost=inf", "simulator.ngram.cost", "finite number"),
        (
            "simulator.draft_model.temperature_effect=nan",
            "simulator.draft_model.temperature_effect",
            "finite",
        ),
        ("simulator.draft_model.alpha=1.01", "simulator.draft_model.alpha", "at most 1, got 1.01"),
        ("simulator.draft_model.alpha=[0.5,-1]", "simulator.draft_model.alpha", "at least 0"),
        ("simulator.draft_model.alpha=[]", "simulator.draft_model.alpha", "at least one number"),
        ("simulator.draft_model.alpha=high", "simulator.draft_model.alpha", "must be numbers, got 'high'"),
        ("simulator.draft_model.alpha=true", "simulator.draft_model.alpha", "must be numbers, got True"),
        (
            "simulator.tasks=[{name: a, alpha_offset: 2}]",
            "simulator.tasks[0].alpha_offset",
            "at least -1 and at most 1",
        ),
        ("simulator.tasks=[{alpha_offset: 0.1}]", "simulator.tasks[0].name", "must be set"),
        ("simulator.failures=[{call: 2}]", "simulator.failures[0].call", "needs a variant"),
        ("simulator.failures=[{variant: a, call: -1}]", "simulator.failures[0].call", "at least 0"),
        ("backend.name=native", "simulator", "backend.name=native ignores it"),
    ],
)
def test_wrong_settings_name_their_field(override: str, field: str, says: str) -> None:
    error = refusal("backend=simulator", override)
    assert error.field == field
    assert says in str(error)


@pytest.mark.parametrize("override", ["simulator.step_s=1", "+simulator.step_s=1", "++simulator.stp=1"])
def test_settings_of_the_simulator_need_the_simulator(override: str) -> None:
    error = refusal(override)
    assert error.field == override.lstrip("+").partition("=")[0]
    assert "Add backend=simulator" in str(error)


def test_the_simulator_needs_its_settings() -> None:
    error = refusal("backend.name=simulator")
    assert error.field == "simulator"
    assert "Use backend=simulator, which sets it" in str(error)


def test_a_synthetic_variant_is_named_and_lossy() -> None:
    cell = one("method=synthetic", "method.k=[2,4]", "method.acceptance=[0.9,0.5]")
    drafting = variants_of(cell)[1:]
    assert [variant.variant_id for variant in drafting] == ["synthetic-k2", "synthetic-k4"]
    assert not any(variant.lossless for variant in drafting)
    assert drafting[0].option("acceptance") == (0.9, 0.5)
    assert variants_of(one("method=draft_model"))[1].lossless


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (("method=synthetic", "method.acceptance=1.5"), "method.acceptance"),
        (("method=synthetic", "method.acceptance=null"), "method.acceptance"),
        (("method=draft_model", "method.acceptance=0.5"), "method.acceptance"),
    ],
)
def test_acceptance_is_a_probability_and_for_synthetic_alone(overrides: tuple[str, ...], field: str) -> None:
    assert refusal(*overrides).field == field


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("simulator.failures=[{variant: draft_model-k55}]", "'draft_model-k5'"),
        ("simulator.tasks=[{name: cod, alpha_offset: 0.1}]", "'code'"),
    ],
)
def test_misspelt_variants_and_tasks_are_refused_with_a_guess(override: str, meant: str) -> None:
    cell = one("backend=simulator", override)
    with pytest.raises(ConfigError, match=f"Did you mean {meant}"):
        plan_cell(cell)


def test_a_task_of_another_shipped_workload_is_known() -> None:
    plan_cell(one("backend=simulator", "workload=maths", "simulator.tasks=[{name: code, alpha_offset: 0.1}]"))
