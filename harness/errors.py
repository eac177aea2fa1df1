"""The exception tree: one root, one class per cause, each message ending in a remedy."""

from __future__ import annotations


class HarnessError(Exception):
    """Root of every error the harness raises on purpose.

    Attributes:
        exit_code: what the command line returns when the error ends a run.
    """

    exit_code: int = 1


class ConfigError(HarnessError):
    """A configuration value is unknown, of the wrong type or out of range."""

    exit_code = 2

    def __init__(self, field: str, required: str, received: object, remedy: str = "") -> None:
        """Name the field, what it needs, what it got and how to mend it."""
        self.field = field
        self.required = required
        self.received = received
        self.remedy = remedy
        tail = f" {remedy}" if remedy else ""
        super().__init__(f"{field}: {required}, got {received!r}.{tail}")


class MissingBackendError(HarnessError):
    """A backend's package is not installed; the message holds the install command."""

    exit_code = 2


class UnsupportedError(HarnessError):
    """A backend, model family or device can't do what was asked."""

    exit_code = 2


class ModelSourceError(HarnessError):
    """A model can't be found, fetched, verified or read."""

    exit_code = 2


class PairMismatchError(HarnessError):
    """Target and drafter don't share a vocabulary or another fact they must share."""

    exit_code = 2


class EngineError(HarnessError):
    """An engine's process ended, hangs or failed; the message ends with its last log lines."""


class OutOfMemoryError(HarnessError):
    """A model or a cache doesn't fit the free memory."""


class WorkloadError(HarnessError):
    """A workload file is missing, empty or malformed; the message names file, line and field."""

    exit_code = 2


class MeasurementError(HarnessError):
    """A trial ended without a usable measurement."""


class ResultFormatError(HarnessError):
    """Stored results are missing, damaged or of another format version."""

    exit_code = 2


class StorageError(HarnessError):
    """Results or reports can't be written where they were asked for."""
