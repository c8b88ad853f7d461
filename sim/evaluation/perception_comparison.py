"""Comparison of runs of `stringline-perceive` for the command `stringline-compare`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.datasets.files.made_folder import made_folder
from stringline.encoders.perception.run_comparison import (
    PerceptionRun,
    RecipeDifference,
    compare_runs,
)
from stringline.sim.statistics.paired import holm


def compare_perception(
    names: Sequence[str],
    paths: Sequence[str],
    baseline: str | None,
    measure: str | None,
    output: Path,
) -> None:
    """Compares runs and writes compare.json; runs of one name are trainings of one recipe."""
    runs = [PerceptionRun.read(name, Path(path)) for name, path in zip(names, paths, strict=True)]
    differences = compare_runs(runs, baseline, measure)
    unit = str(runs[0].results["unit"])
    corrected = holm([one.found.p for one in differences])
    with made_folder(output), exclusive(output):
        plain = [
            one.to_dict() | {"p_holm": p} for one, p in zip(differences, corrected, strict=True)
        ]
        write_file(output / "compare.json", json.dumps(plain, indent=1).encode())
        (output / "compare.html").unlink(missing_ok=True)  # Of an earlier comparison.
    sys.stdout.write(perception_table(differences, corrected, unit))


def perception_table(
    differences: Sequence[RecipeDifference], corrected: Sequence[float], unit: str
) -> str:
    """Returns a line per difference, with corrected p values from 0.0001 on, as text."""
    lines = []
    for one, p in zip(differences, corrected, strict=True):
        found = one.found
        single = [
            name
            for name, count in zip((one.first, one.second), one.trainings, strict=True)
            if count == 1
        ]
        lines.append(
            f"{one.first} less {one.second}: {one.measure} {found.value:+.4f} "
            f"[{found.low:+.4f}, {found.high:+.4f}], p {max(p, 0.0001):.2g} (Holm); "
            f"{one.values[0]:.4f} and {one.values[1]:.4f}. {found.groups} {unit}, "
            f"{_number(found.needed_groups)} for a verdict; {one.trainings[0]} and "
            f"{one.trainings[1]} trainings, {_number(found.needed_seeds)} of each for a verdict."
            + (f" One training says nothing about others of {' and '.join(single)}." * bool(single))
        )
    return "\n".join(lines) + "\n"


def _number(needed: int | None) -> str:
    return "no number" if needed is None else f"{needed:,}"


def check_perception_options(overrides: Sequence[str]) -> None:
    """Refuses options of evaluations, which runs of perception do not read."""
    read = ("runs", "names", "baseline", "measure", "output")
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        if key not in read:
            raise ValueError(
                f"{override} has no effect on runs of stringline-perceive; allowed: "
                f"{', '.join(read)}."
            )
