"""The README's commands are real: they compose, and the two set-up commands are what CI runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness.__main__ import _COMMANDS
from harness.cli.compose import compose_cells
from harness.config.store import register_schemas

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", README, re.S) for line in block.splitlines()]
COMMANDS = "|".join(_COMMANDS)
MEASURING = [
    line.partition("-m harness ")[2]
    for line in LINES
    if "-m harness " in line and not re.search(rf"-m harness ({COMMANDS})\b", line)
]


@pytest.fixture(autouse=True)
def _hydra() -> None:
    register_schemas()
    OmegaConf.register_new_resolver("harness.scratch", lambda: "unused", replace=True)


def test_the_readme_shows_commands_that_measure() -> None:
    assert len(MEASURING) > 8


@pytest.mark.parametrize("command", MEASURING)
def test_every_measuring_command_composes(command: str) -> None:
    words = shlex.split(command)
    assert compose_cells([word for word in words if word != "-m"], multirun="-m" in words)


def test_the_readme_has_the_two_set_up_commands() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e "
    assert f"{install}. && .venv/bin/python -m harness +sweep=k_temperature" in LINES
    assert f"{install}'.[test]' && .venv/bin/python -m pytest" in LINES
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install --quiet -c constraints.txt -e '.[test]'" in ci
    assert "python -m pytest" in (ROOT / "scripts" / "test").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 250


@pytest.mark.parametrize("file", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda f: f.name)
def test_relative_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (file.parent / target).exists(), target
