"""The tables of perception in docs/lab."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from evidence_page import Line, header
from evidence_perception_studies import REFERENCES, TASKS
from numpy.typing import NDArray

from stringline.encoders.perception.paired_resampling import Resampled, paired_difference
from stringline.encoders.perception.run_comparison import checked_measure, image_values
from stringline.sim.statistics.paired import holm

Array = NDArray[np.float64]
# The name of the compared value of an image, by task or by `task` of stringline-perceive.
COMPARED = {
    "stages": "top-1",
    "classify": "top-1",
    "retrieve": "i2t R@1",
    "detect2d": "mean IoU",
    "detect3d": "mean IoU",
    "video": "within pairs",
}
UNITS = {"video": "pairs of clips"}
STUDIES = {
    "ResolutionTransfer": "at other sizes",
    "PatchShuffling": "with permuted patches",
    "CoordinateOffset": "with an offset",
    "FrameOrder": "in other orders of frames",
}


def tables(lines: Sequence[Line]) -> str:
    """Returns the tables of each task; lines of other families of cells are ignored."""
    found = []
    for task in TASKS:
        own = [line for line in lines if line.get("perception") == task]
        if own:
            choices: dict[str, list[Line]] = {}
            for line in sorted(own, key=lambda line: int(str(line["seed"]))):
                choices.setdefault(str(line["choice"]), []).append(line)
            found.append(table(task, choices))
            found += [study for study in (*studies(task, choices), steps_to(choices)) if study]
    return "\n".join(found)


def table(task: str, choices: Mapping[str, Sequence[Line]]) -> str:
    """Returns the measures of each training, and the differences to the reference."""
    reference = REFERENCES[task]
    shown = TASKS[task].shown
    ordered = sorted(choices, key=lambda name: -mean(choices[name], shown[0]))
    compared = differences(task, choices)
    value = COMPARED.get(task) or COMPARED[TASKS[task].head]
    columns = (
        "choice",
        *(f"`{name}` of each training" for name in shown),
        f"{reference} less this: {value}, interval, p (Holm)",
        f"{UNITS.get(task, 'images')}, trainings for a verdict",
    )
    images = plain(next(iter(choices.values()))[0]["images"])
    rows = [
        f"### Perception: {task}",
        "",
        f"{images['train']} images for training, {images['test']} for the test.",
        "",
        *header(columns),
    ]
    for name in ordered:
        values = ("; ".join(f"{one:.3f}" for one in each(choices[name], key)) for key in shown)
        rows.append(f"| {' | '.join((name, *values, *compared.get(name, ('-', '-'))))} |")
    return "\n".join(rows) + "\n"


def each(lines: Sequence[Line], measure: str) -> list[float]:
    """Returns a measure of each training."""
    return [float(plain(line["measures"]).get(measure, float("nan"))) for line in lines]


def mean(lines: Sequence[Line], measure: str) -> float:
    """Returns the mean of a measure over trainings."""
    return fmean(each(lines, measure))


def differences(task: str, choices: Mapping[str, Sequence[Line]]) -> dict[str, tuple[str, str]]:
    """Returns the difference of the reference less each choice, and the data for a verdict."""
    first = choices.get(REFERENCES[task])
    if first is None:
        return {}
    found = {
        name: difference(task, lines, first)
        for name, lines in choices.items()
        if lines is not first
    }
    corrected = holm([one.p for one in found.values()])
    return {
        name: (
            f"{one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}], {p_text(p)}"
            + (" (these trainings)" if one.seeds == 1 else ""),
            f"{number(one.needed_groups)}, {number(one.needed_seeds)}",
        )
        for (name, one), p in zip(found.items(), corrected, strict=True)
    }


def p_text(p: float) -> str:
    """Returns a p value in words."""
    return "p < 0.001" if p < 0.001 else f"p {p:.2g}"


def number(needed: int | None) -> str:
    """Returns a number of images or trainings; a dash if no number suffices."""
    return "-" if needed is None else f"{needed:,}"


def difference(task: str, lines: Sequence[Line], reference: Sequence[Line]) -> Resampled:
    """Returns the difference of the mean values of images, over images and trainings."""
    own, counts = values(lines)
    first, _ = values(reference)
    groups = lines[0].get("groups")
    if not isinstance(groups, list):
        # Lines of earlier cells: the clips of a pair are neighbours, and other images independent.
        index = np.array(plain(lines[0]["each"])["index"])
        groups = (index // 2 if task == "video" else index).tolist()
    return paired_difference(own, first, groups, counts=counts)


def values(lines: Sequence[Line]) -> tuple[Array, Array | None]:
    """Returns values (trainings, images), and the numbers of objects for sums over objects."""
    results = [{"each": plain(line["each"])} for line in lines]
    every = [image_values(one, checked_measure(one, None)) for one in results]
    return np.array([found for found, _ in every]), every[0][1]


def steps_to(choices: Mapping[str, Sequence[Line]]) -> str:
    """Returns a table of the steps to the last measure without encoding; empty without curves."""
    curves = {
        name: [
            list(map(plain, curve)) for line in lines if isinstance(curve := line["curve"], list)
        ]
        for name, lines in choices.items()
        if all(line.get("curve") for line in lines)
    }
    if "none" not in curves:
        return ""
    measure = next(name for name in curves["none"][0][0] if name != "steps")
    wanted = fmean(float(curve[-1][measure]) for curve in curves["none"])
    text = [f"Steps to {measure} {wanted:.3f}, the last one of `none`, of each training.", ""]
    text += header(("choice", "steps"))
    for name, found in curves.items():
        steps = [
            next((f"{row['steps']:.0f}" for row in curve if row[measure] >= wanted), "not reached")
            for curve in found
        ]
        text.append(f"| {name} | {'; '.join(steps)} |")
    return "\n".join(text) + "\n"


def studies(task: str, choices: Mapping[str, Sequence[Line]]) -> list[str]:
    """Returns a table for each study, with the first training of each choice."""
    measure = "within_pair" if task == "video" else "top1"
    found = []
    for study, title in STUDIES.items():
        rows = {name: plain(lines[0]["studies"]).get(study) for name, lines in choices.items()}
        rows = {name: measured for name, measured in rows.items() if measured}
        if not rows:
            continue
        settings = [str(row["setting"]) for row in next(iter(rows.values()))]
        name_of = COMPARED.get(task) or COMPARED[TASKS[task].head]
        text = [f"{task}: {name_of} {title}; the first training of each choice.", ""]
        text += header(("choice", "usual", *settings, "changed"))
        for name, measured in rows.items():
            usual = f"{each(choices[name], measure)[0]:.3f}"
            shown = [f"{row[measure]:.3f}" for row in measured]
            changed = max(float(row["changed"]) for row in measured)
            text.append(f"| {' | '.join((name, usual, *shown, f'{100 * changed:.1f} %'))} |")
        found.append("\n".join(text) + "\n")
    return found


def plain(value: object) -> dict[str, Any]:
    """Returns a field of a line that is a mapping."""
    assert isinstance(value, dict)
    return value
