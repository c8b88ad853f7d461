"""Tests import benchmarks by name; their folder comes last, because it has an `encodings.py`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
