"""`python -m harness export RESULTS [traffic=NAME ...]`: what to run, as files for serving engines."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.capacity.export import export_files
from harness.capacity.plan import make_plan
from harness.capacity.settings import load_settings
from harness.errors import ConfigError
from harness.results import load
from harness.results.storage import storage_errors, write_atomic


def main(arguments: list[str]) -> int:
    """Plan, then write one file per engine."""
    parser = argparse.ArgumentParser(prog="python -m harness export", description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, help="a folder such as results/k_temperature")
    parser.add_argument("settings", nargs="*", help="as for plan: GROUP=NAME or KEY=VALUE")
    parser.add_argument("--temperature", type=float, help="which configuration; the lowest by default")
    parser.add_argument("--out", type=Path, help="where to write; reports/NAME/engines by default")
    options = parser.parse_intermixed_args(arguments)
    plan = make_plan(load(options.results), load_settings(options.settings))
    known = {float(one.model.facts.get("temperature") or 0.0): one for one in reversed(plan.configurations)}
    wanted = min(known) if options.temperature is None else options.temperature
    if wanted not in known:
        listed = ", ".join(f"{value:g}" for value in sorted(known))
        raise ConfigError("--temperature", "must be one that was measured", wanted, f"Measured: {listed}.")
    out = options.out or Path("reports") / plan.name / "engines"
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    files = export_files(plan, known[wanted])
    for name, content in files.items():
        write_atomic(out / name, lambda file, text=content: file.write(text.encode()))  # type: ignore[misc]
        print(out / name)
    return 0
