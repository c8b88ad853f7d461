"""Runs of benchmarks as scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def results(name: str, folder: Path, *arguments: str, **variables: str) -> list[dict[str, Any]]:
    """Runs a benchmark with further variables of the environment; returns its lines of results."""
    file = folder / f"{name}.json"
    subprocess.run(
        [sys.executable, f"benchmarks/{name}.py", "--json", str(file), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / ".src")} | variables,
        check=True,
        capture_output=True,
    )
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    return rows
