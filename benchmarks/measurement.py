"""Shared parts of the benchmarks: the command line, lines of results, and the environment.

Import it first. This folder has files that are named like packages, `encodings` of Python's library
and `lcm`; so it becomes the last entry of `sys.path`, which child processes inherit.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stringline.datasets.files.atomic import write_file

FOLDER = Path(__file__).resolve().parent
sys.path = [*(entry for entry in sys.path if Path(entry).resolve() != FOLDER), str(FOLDER)]

Row = dict[str, Any]


def row(
    name: str,
    value: float,
    unit: str,
    peer: str | None = "none",
    ratio: float | None = None,
    **more: object,
) -> Row:
    """Returns a line of results, with the ratio to the value of a peer if there is one."""
    return {"name": name, "value": value, "unit": unit, "peer": peer, "ratio": ratio, **more}


def parser_of(description: str | None, *, results: bool = True) -> argparse.ArgumentParser:
    """Returns a parser whose description keeps its line breaks, with `--json` for results."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if results:
        parser.add_argument("--json", type=Path, help="file for the results")
    return parser


def write_rows(rows: Sequence[Row], file: Path | None) -> None:
    """Writes lines of results, if there is a file for them."""
    if file is not None:
        write_file(file, (json.dumps(rows, indent=2) + "\n").encode())
