"""The part of docs/results.md that says what the cells of evidence have shown."""

from collections.abc import Sequence
from pathlib import Path

from stringline.datasets.intervals import Rate
from stringline.datasets.paired import Pairs, difference_interval, holm, mcnemar

BEGIN, END = "<!-- evidence: written by benchmarks/evidence.py -->", "<!-- end of evidence -->"
REFERENCE = "cayley_values"
Line = dict[str, object]


def write_page(path: Path, lines: Sequence[Line]) -> None:
    """Replaces what stands between the two marks of the page.

    Raises:
        ValueError: The page lacks the marks.
    """
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} lacks the lines {BEGIN!r} and {END!r}, between which the evidence is written.")
    before, rest = page.split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n\n{tables(lines)}\n{END}{rest.split(END, 1)[1]}")


def tables(lines: Sequence[Line]) -> str:
    """Returns one table per task, coordinates and scale."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((str(line["task"]), str(line["coordinates"]), str(line["scale"])), []).append(line)
    return "\n".join(
        table(f"{task}, {coordinates} coordinates, {scale}", group)
        for (task, coordinates, scale), group in sorted(groups.items())
    )


def table(title: str, lines: Sequence[Line]) -> str:
    """Returns one table: each encoding, and how it differs from the reference on the same seeds of training and evaluation."""
    by_encoding: dict[str, dict[int, str]] = {}
    for line in lines:
        by_encoding.setdefault(str(line["encoding"]), {})[int(str(line["seed"]))] = str(line["success"])
    reference = by_encoding.get(REFERENCE, {})
    pairs = {name: paired(runs, reference) for name, runs in by_encoding.items() if name != REFERENCE}
    told = {name: found for name, found in pairs.items() if found.count}
    corrected = dict(zip(told, holm([mcnemar(found) for found in told.values()]), strict=True))
    rows = [
        f"### {title}",
        "",
        f"| encoding | runs | success | {REFERENCE} less this, same seeds | p (McNemar, Holm) |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(by_encoding, key=lambda name: -rate(by_encoding[name]).value):
        compared = f"{difference(told[name])} | {corrected[name]:.2g}" if name in told else "- | -"
        rows.append(f"| {name} | {len(by_encoding[name])} | {rate(by_encoding[name])} | {compared} |")
    return "\n".join(rows) + "\n"


def rate(runs: dict[int, str]) -> Rate:
    """Returns successes over all training seeds."""
    joined = "".join(runs.values())
    return Rate(joined.count("1"), len(joined))


def paired(runs: dict[int, str], reference: dict[int, str]) -> Pairs:
    """Returns outcomes beside the reference's, of the training seeds that both have."""
    total = Pairs(0, 0, 0, 0)
    for seed in runs.keys() & reference.keys():
        total += Pairs.of([digit == "1" for digit in runs[seed]], [digit == "1" for digit in reference[seed]])
    return total


def difference(pairs: Pairs) -> str:
    """Returns points with their interval, such as `+26 points [14, 38]`."""
    low, high = difference_interval(pairs)
    return f"{100 * pairs.difference:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}]"
