"""The tables of the campaign in docs/results.md."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import Pairs, difference_interval, holm, mcnemar

BEGIN, END = "<!-- evidence: written by benchmarks/evidence.py -->", "<!-- end of evidence -->"
REFERENCE, FIRST_POLICY = "cayley_values", "diffusion"
Line = dict[str, object]


def write_page(path: Path, text: str) -> None:
    """Replaces the text between the two marks of a page."""
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(
            f"{path} lacks the lines {BEGIN!r} and {END!r}, which enclose the evidence."
        )
    before, rest = page.split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}")


def tables(lines: Sequence[Line]) -> str:
    """Returns tables of encodings per task, coordinates and scale, and tables of policies.

    Lines of other families of cells are ignored.
    """
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in (line for line in lines if "encoding" in line):
        groups.setdefault(
            (str(line["task"]), str(line["coordinates"]), str(line["scale"])), []
        ).append(line)
    return "\n".join(
        found
        for (task, coordinates, scale), group in sorted(groups.items())
        for found in tables_of(f"{task}, {coordinates} coordinates, {scale}", group)
    )


def tables_of(title: str, lines: Sequence[Line]) -> Iterator[str]:
    """Yields the tables of one task: encodings, and policies with the reference encoding."""
    if encodings := [line for line in lines if policy_of(line) == FIRST_POLICY]:
        yield table(
            title, "encoding", by_name(encodings, lambda line: str(line["encoding"])), REFERENCE
        )
    policies = by_name([line for line in lines if line["encoding"] == REFERENCE], policy_of)
    if policies.keys() - {FIRST_POLICY}:
        yield table(
            f"{title}: kinds of policies, all with {REFERENCE}", "policy", policies, FIRST_POLICY
        )


def policy_of(line: Line) -> str:
    """Returns the kind of policy; older lines, without a choice, are of the first one."""
    return str(line.get("policy", FIRST_POLICY))


def by_name(lines: Sequence[Line], name: Callable[[Line], str]) -> dict[str, dict[int, str]]:
    """Returns outcomes by compared choice and by training seed."""
    found: dict[str, dict[int, str]] = {}
    for line in lines:
        found.setdefault(name(line), {})[int(str(line["seed"]))] = str(line["success"])
    return found


def table(title: str, compared: str, outcomes: dict[str, dict[int, str]], reference: str) -> str:
    """Returns one table: each choice and its paired difference from the reference."""
    pairs = {
        name: paired(runs, outcomes.get(reference, {}))
        for name, runs in outcomes.items()
        if name != reference
    }
    known = {name: found for name, found in pairs.items() if found.count}
    corrected = dict(zip(known, holm([mcnemar(found) for found in known.values()]), strict=True))
    rows = [
        f"### {title}",
        "",
        f"| {compared} | runs | success | {reference} less this, same seeds | p (McNemar, Holm) |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(outcomes, key=lambda name: -rate(outcomes[name]).value):
        cells = f"{difference(known[name])} | {corrected[name]:.2g}" if name in known else "- | -"
        rows.append(f"| {name} | {len(outcomes[name])} | {rate(outcomes[name])} | {cells} |")
    return "\n".join(rows) + "\n"


def rate(runs: dict[int, str]) -> Rate:
    """Returns successes over all training seeds."""
    joined = "".join(runs.values())
    return Rate(joined.count("1"), len(joined))


def paired(runs: dict[int, str], reference: dict[int, str]) -> Pairs:
    """Returns pairs of outcomes with the reference, on the training seeds of both."""
    total = Pairs(0, 0, 0, 0)
    for seed in runs.keys() & reference.keys():
        total += Pairs.of(
            [digit == "1" for digit in runs[seed]], [digit == "1" for digit in reference[seed]]
        )
    return total


def difference(pairs: Pairs) -> str:
    """Returns percentage points with their interval, such as `+26 points [14, 38]`."""
    low, high = difference_interval(pairs)
    return f"{100 * pairs.difference:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}]"
