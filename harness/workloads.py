"""Workloads: named sets of prompts in JSONL files, shipped or the user's own, checked line by line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import WorkloadError
from harness.paths import workloads_dir

FORMAT = "specdec-workload"
VERSION = 1
ROLES = ("system", "user", "assistant")

_HEADER_KEYS = ("format", "version", "name", "description", "language")
_PROMPT_KEYS = ("id", "task", "messages", "prompt", "max_output_tokens", "tags")
_MESSAGE_KEYS = ("role", "content")
_EXAMPLE_HEADER = (
    f'{{"format": "{FORMAT}", "version": {VERSION}, "name": "mine", "description": "...", "language": "en"}}'
)


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: one of `ROLES`.
        content: the text of the turn.
    """

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """One prompt: a conversation for the chat template, or raw text.

    Attributes:
        id: unique within its workload.
        task: what kind of work it is, such as `code`; results are broken down by it.
        messages: the conversation, or None when `text` is given.
        text: raw text that no chat template is applied to, or None when `messages` are given.
        max_output_tokens: a limit of this prompt alone, or None for the run's limit.
        tags: free words for the user's own filters.
    """

    id: str
    task: str
    messages: tuple[Message, ...] | None
    text: str | None
    max_output_tokens: int | None = None
    tags: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """All text of the prompt, turns joined by a newline, without roles."""
        if self.text is not None:
            return self.text
        return "\n".join(message.content for message in self.messages or ())


@dataclass(frozen=True)
class Workload:
    """A named set of prompts.

    Attributes:
        name: as the file's header gives it.
        description: one sentence for listings and reports.
        language: language tag of the prompts, such as `en`.
        prompts: in file order, at least one.
        sha256: of the file's bytes; two results with unequal sums did not measure the same prompts.
        path: where it was read.
    """

    name: str
    description: str
    language: str
    prompts: tuple[Prompt, ...]
    sha256: str
    path: Path

    @property
    def tasks(self) -> tuple[str, ...]:
        """The distinct tasks in order of first appearance."""
        return tuple(dict.fromkeys(prompt.task for prompt in self.prompts))

    def take(self, num_prompts: int | None) -> tuple[Prompt, ...]:
        """The first prompts in file order.

        Args:
            num_prompts: how many, or None for all.

        Returns:
            Exactly `num_prompts` prompts.

        Raises:
            WorkloadError: if it is not positive or more than the workload holds.
        """
        if num_prompts is None:
            return self.prompts
        if not 1 <= num_prompts <= len(self.prompts):
            raise WorkloadError(
                f"{self.path}: num_prompts must be between 1 and {len(self.prompts)}, got {num_prompts}. "
                "Ask for fewer prompts, leave it empty for all, or choose a larger workload."
            )
        return self.prompts[:num_prompts]


def available_workloads() -> list[str]:
    """Names of the shipped workloads, sorted."""
    return sorted(path.stem for path in workloads_dir().glob("*.jsonl"))


def load_workload(name_or_path: str) -> Workload:
    """Read and check a workload.

    Args:
        name_or_path: a shipped name, or a path that ends in `.jsonl`.

    Returns:
        The workload with all its prompts.

    Raises:
        WorkloadError: if it can't be found or a line is malformed; names file, line, field and remedy.
    """
    path = _locate(name_or_path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WorkloadError(
            f"{path}: can't be read ({error.strerror}). Check the path and its rights."
        ) from error
    return _parse(data, path)


def normalise(text: str) -> str:
    """Fold case and white space, so that texts that differ only in layout compare equal."""
    return " ".join(text.casefold().split())


def check_disjoint(measured: Workload, warmup: Workload) -> None:
    """Refuse a warm-up that decodes a measured prompt: its cache would speed up the measurement.

    Args:
        measured: the workload whose times count.
        warmup: the workload decoded before.

    Raises:
        WorkloadError: naming the first prompt of the warm-up that the measured workload shares.
    """
    owners = {normalise(prompt.content): prompt.id for prompt in measured.prompts}
    for prompt in warmup.prompts:
        owner = owners.get(normalise(prompt.content))
        if owner is not None:
            raise WorkloadError(
                f"{warmup.path}: warm-up prompt {prompt.id!r} equals {owner!r} of {measured.path}. "
                "Warm-up prompts must not be measured: change one of them or choose another warm-up workload."
            )


def _locate(name_or_path: str) -> Path:
    if name_or_path.endswith(".jsonl"):
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            raise WorkloadError(
                f"{path}: no such workload file. Check the path; it is relative to {Path.cwd()}."
            )
        return path
    names = available_workloads()
    if name_or_path not in names:
        raise WorkloadError(
            f"unknown workload {name_or_path!r}.{_did_you_mean(name_or_path, names)} Shipped workloads: "
            f"{', '.join(names) or 'none'}. For an own file give a path that ends in .jsonl."
        )
    return workloads_dir() / f"{name_or_path}.jsonl"


@dataclass(frozen=True)
class _Line:
    """One JSON object of a workload file and where it stands."""

    path: Path
    number: int
    fields: dict[str, Any]

    def fail(self, field: str, problem: str, remedy: str) -> NoReturn:
        raise WorkloadError(f"{self.path}, line {self.number}, field {field!r}: {problem}. {remedy}")

    def allow(self, keys: tuple[str, ...], *, inside: str = "") -> None:
        for key in self.fields:
            if key not in keys:
                remedy = f"{_did_you_mean(key, keys).strip()} Known keys: {', '.join(keys)}.".strip()
                self.fail(inside + key, "unknown key", remedy)

    def text(self, field: str, *, inside: str = "") -> str:
        value = self.fields.get(field)
        if not isinstance(value, str) or not value.strip():
            problem = (
                "missing" if field not in self.fields else f"must be text that is not empty, got {value!r}"
            )
            self.fail(inside + field, problem, f'Write "{field}": "...".')
        return value


def _parse(data: bytes, path: Path) -> Workload:
    lines = list(_lines(data, path))
    if not lines:
        raise WorkloadError(f"{path}: the file is empty. Start it with the header {_EXAMPLE_HEADER}")
    header = _checked_header(lines[0])
    line_by_id: dict[str, int] = {}
    prompts = []
    for line in lines[1:]:
        prompt = _prompt(line)
        if prompt.id in line_by_id:
            line.fail(
                "id", f"{prompt.id!r} is already used in line {line_by_id[prompt.id]}", "Make it unique."
            )
        line_by_id[prompt.id] = line.number
        prompts.append(prompt)
    if not prompts:
        raise WorkloadError(f"{path}: no prompts after the header. Add one prompt object per line.")
    return Workload(
        name=header.text("name"),
        description=header.text("description"),
        language=header.text("language"),
        prompts=tuple(prompts),
        sha256=hashlib.sha256(data).hexdigest(),
        path=path,
    )


def _lines(data: bytes, path: Path) -> Iterator[_Line]:
    """Decode line by line: `str.splitlines` would also cut at U+2028, which JSON allows inside a string."""
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        where = f"{path}, line {number}"
        try:
            fields = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise WorkloadError(
                f"{where}: not UTF-8 (byte {error.start + 1} of the line). Save the file as UTF-8."
            ) from error
        except json.JSONDecodeError as error:
            raise WorkloadError(
                f"{where}, column {error.colno}: not valid JSON ({error.msg}). Write one object per line."
            ) from error
        if not isinstance(fields, dict):
            raise WorkloadError(
                f"{where}: must be a JSON object, got {raw[:40]!r}. Write one object per line."
            )
        yield _Line(path, number, fields)


def _checked_header(line: _Line) -> _Line:
    if line.fields.get("format") != FORMAT:
        problem = f"the first object must be a header of format {FORMAT!r}, got {line.fields.get('format')!r}"
        line.fail("format", problem, f"Start the file with {_EXAMPLE_HEADER}")
    version = line.fields.get("version")
    if version != VERSION or isinstance(version, bool):
        line.fail("version", f"must be {VERSION}, got {version!r}", "Convert the file or update the harness.")
    line.allow(_HEADER_KEYS)
    return line


def _prompt(line: _Line) -> Prompt:
    line.allow(_PROMPT_KEYS)
    if ("messages" in line.fields) == ("prompt" in line.fields):
        problem = "give exactly one of messages and prompt, got " + (
            "both" if "prompt" in line.fields else "neither"
        )
        line.fail("messages", problem, "Use messages for the chat template, prompt for raw text.")
    return Prompt(
        id=line.text("id"),
        task=line.text("task"),
        messages=_messages(line) if "messages" in line.fields else None,
        text=line.text("prompt") if "prompt" in line.fields else None,
        max_output_tokens=_max_output_tokens(line),
        tags=_tags(line),
    )


def _messages(line: _Line) -> tuple[Message, ...]:
    entries = line.fields["messages"]
    if not isinstance(entries, list) or not entries:
        remedy = 'Write "messages": [{"role": "user", "content": "..."}].'
        line.fail("messages", f"must be a list that is not empty, got {entries!r}", remedy)
    return tuple(_message(line, entry, f"messages[{index}]") for index, entry in enumerate(entries))


def _message(line: _Line, entry: object, place: str) -> Message:
    if not isinstance(entry, dict):
        line.fail(place, f"must be an object, got {entry!r}", 'Write {"role": "user", "content": "..."}.')
    turn = _Line(line.path, line.number, entry)
    turn.allow(_MESSAGE_KEYS, inside=f"{place}.")
    role = turn.text("role", inside=f"{place}.")
    if role not in ROLES:
        line.fail(f"{place}.role", f"unknown role {role!r}", f"Use one of {', '.join(ROLES)}.")
    return Message(role=role, content=turn.text("content", inside=f"{place}."))


def _max_output_tokens(line: _Line) -> int | None:
    value = line.fields.get("max_output_tokens")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        remedy = "Leave the key out for the run's own limit."
        line.fail("max_output_tokens", f"must be a whole number of at least 1, got {value!r}", remedy)
    return value


def _tags(line: _Line) -> tuple[str, ...]:
    tags = line.fields.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        line.fail("tags", f"must be a list of words, got {tags!r}", 'Write "tags": ["short", "french"].')
    return tuple(tags)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
