"""Every shipped pair is well-formed; nothing is fetched."""

from __future__ import annotations

import pytest

from harness.cli.compose import compose_cells
from harness.config.store import register_schemas
from harness.config.variants import variants_of
from harness.models.reference import HubRef, parse_ref
from harness.paths import conf_dir

PAIRS = sorted(file.stem for file in (conf_dir() / "pair").glob("*.yaml"))
HEADS = {"llama3.1_8b_eagle3": "eagle3", "vicuna_7b_eagle": "eagle", "vicuna_7b_medusa": "medusa"}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_composes_and_names_models_that_can_be_looked_for(name: str) -> None:
    register_schemas()
    method = HEADS.get(name, "draft_model")
    (config,) = compose_cells([f"pair={name}", f"method={method}", "backend=vllm"])
    assert config.pair.name == name.replace("_", "-")
    drafter = variants_of(config)[1].drafter
    assert drafter is not None
    refs = [parse_ref(config.pair.target), parse_ref(drafter)]
    assert refs[0] != refs[1]
    if name != "smollm2_135m":
        assert all(isinstance(ref, HubRef) for ref in refs)


def test_the_pairs_for_gpu_machines_are_there() -> None:
    wanted = {"qwen2.5_7b_0.5b", "qwen2.5_7b_1.5b", "llama3.1_70b_8b", "llama3.1_8b_1b", *HEADS}
    assert wanted <= set(PAIRS)
