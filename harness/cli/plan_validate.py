"""`python -m harness plan validate RESULTS`: drive the engine under load and compare with the model."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.capacity.validation_table import ValidationTable, write_validation
from harness.errors import ConfigError
from harness.results import load
from harness.runner.validation import ValidationSettings, validate_model


def main(arguments: list[str]) -> int:
    """Validate, store the table beside the results, and print it."""
    options = _parser().parse_intermixed_args(arguments)
    if options.requests < 10:
        raise ConfigError("--requests", "must be at least 10", options.requests)
    settings = ValidationSettings(
        loads=options.loads,
        num_requests=options.requests,
        hold_out_prompts=options.hold_out_prompts,
        seed=options.seed,
        variants=tuple(options.variant),
        overrides=tuple(options.overrides),
    )
    table = validate_model(load(options.results), settings, print)
    print(_text(table))
    print(f"validation: {write_validation(table, options.results)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness plan validate", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("results", type=Path, help="a folder such as results/k_temperature")
    parser.add_argument(
        "overrides", nargs="*", help="KEY=VALUE on the stored configuration, such as pair.target=..."
    )
    parser.add_argument(
        "--loads",
        type=_shares,
        default="0.3,0.55,0.8",
        help="shares of the saturated rate, separated by commas (%(default)s)",
    )
    parser.add_argument("--requests", type=int, default=60, help="per load (%(default)s)")
    parser.add_argument(
        "--hold-out-prompts",
        action="store_true",
        help="calibrate on half of the prompts, drive with the others",
    )
    parser.add_argument("--seed", type=int, default=0, help="of arrivals and prompts (%(default)s)")
    parser.add_argument(
        "--variant", action="append", default=[], help="variant to drive; may be given repeatedly"
    )
    return parser


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share < 1 for share in shares):
        raise ConfigError("--loads", "must be shares between 0 and 1", text, "Write 0.3,0.55,0.8.")
    return shares


def _text(table: ValidationTable) -> str:
    lines = [f"{'variant':<18}{'req/s':>8}  {'figure':<12}{'predicted':>11}{'measured':>11}{'error':>8}"]
    for row in table.rows:
        lines.append(
            f"{row.variant_id:<18}{row.requests_per_s:>8.3g}  {row.figure:<12}{row.predicted:>10.4g}s"
            f"{row.measured:>10.4g}s{100 * row.error:>+7.1f}%"
        )
    for name, bias, error in table.summary():
        lines.append(f"{name}: bias {100 * bias:+.1f}%, mean error {100 * error:.1f}%")
    return "\n".join(lines)
