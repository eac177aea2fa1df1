"""Fetch a checkpoint from the Hugging Face hub: safetensors, JSON and tokenizer files only."""

from __future__ import annotations

from pathlib import Path

from harness.errors import ModelSourceError
from harness.models.notice import announce
from harness.models.reference import HubRef

# No pickles (.bin, .pt, .pth): loading one can run code.
_WEIGHTS = "*.safetensors"
_DESCRIPTION = ("*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")
# The same weights once more, in other layouts.
_IGNORE = ("original/*", "consolidated*", "onnx/*")


def snapshot(ref: HubRef, *, with_weights: bool = True) -> Path:
    """Download a repository, or find it in the hub's own cache.

    Args:
        ref: which repository, at which revision.
        with_weights: fetch the weights too, not only the files that describe them.

    Returns:
        The snapshot's folder.

    Raises:
        ModelSourceError: no network, no such repository or revision, or no permission.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The root of the HTTP library's errors; which library that is differs between hub releases.
    transport_error: type[BaseException] = HfHubHTTPError.__bases__[0]
    name = f"hub:{ref.repo}" + (f"@{ref.revision}" if ref.revision else "")
    announce(f"looking up {name}")
    allowed = [*_DESCRIPTION, _WEIGHTS] if with_weights else [*_DESCRIPTION]
    try:
        return Path(
            snapshot_download(
                ref.repo, revision=ref.revision, allow_patterns=allowed, ignore_patterns=[*_IGNORE]
            )
        )
    except GatedRepoError as error:
        raise ModelSourceError(
            f"{name}: its licence must be accepted first, on https://huggingface.co/{ref.repo}; then log in "
            "with `hf auth login`."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelSourceError(f"{name}: the repository has no revision {ref.revision!r}.") from error
    except RepositoryNotFoundError as error:
        raise ModelSourceError(
            f"{name}: no such repository, or it is private. Check the name, or log in with `hf auth login`."
        ) from error
    except (transport_error, OSError, ValueError) as error:
        raise ModelSourceError(
            f"{name}: couldn't be fetched ({type(error).__name__}: {_first_line(error)}). Check the network "
            "and HF_ENDPOINT, fetch it elsewhere and copy the hub cache (HF_HOME), or use a path: model."
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")
