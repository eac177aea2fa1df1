"""`python -m harness`: measuring is Hydra's command line; other words start a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from harness.errors import HarnessError

_COMMANDS = {
    "calibrate": "harness.cli.calibrate:main",
    "check": "harness.cli.check:main",
    "compare": "harness.cli.compare:main",
    "export": "harness.cli.export:main",
    "plan": "harness.cli.plan:main",
    "rebaseline": "harness.cli.rebaseline:main",
    "report": "harness.cli.report:main",
    "train": "harness.cli.train:main",
    "trend": "harness.cli.trend:main",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: everything was measured; 1: something failed, what was measured is stored; 2: bad input, nothing
    was measured; 5: the lossless check found a defect, everything is stored; 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = _COMMANDS.get(arguments[0]) if arguments else None
    try:
        if command is None:
            return _load("harness.cli.measure:main")(arguments)
        return _load(command)(arguments[1:])
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # whoever read our output has gone, as `| head` does; keep Python from complaining when it closes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _load(target: str) -> Callable[[list[str]], int]:
    module, _, name = target.partition(":")
    function: Callable[[list[str]], int] = getattr(import_module(module), name)
    return function


if __name__ == "__main__":
    sys.exit(main())
