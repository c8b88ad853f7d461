"""Tables for a terminal, with rows that span columns, which the library `tabulate` lacks."""

from collections.abc import Collection, Mapping, Sequence

from stringline.sim.evaluation.results import Summary


def text_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[int] = (0, 1)
) -> str:
    """Returns a table whose columns are as wide as their widest entry.

    Args:
        head: Names of the columns.
        rows: Entries; a row of two entries is a name and a text that spans the other columns.
        words: Left-aligned columns; the others are right-aligned.
    """
    whole = [list(head), *(list(row) for row in rows if len(row) == len(head))]
    first = max(len(row[0]) for row in [head, *rows])
    widths = [first, *(max(len(row[column]) for row in whole) for column in range(1, len(head)))]

    def line(row: Sequence[str]) -> str:
        if len(row) != len(head):
            return f"{row[0]:<{first}}  {row[1]}".rstrip()
        aligned = [
            f"{cell:<{width}}" if column in words else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    return "\n".join(line(row) for row in [head, *rows])


def summaries_table(
    summaries: Mapping[str, Summary | str], statistics: Mapping[str, str] | None = None
) -> str:
    """Returns the metrics of each task with the rates of its stages; a text is a failure.

    `statistics` over several tasks are below them, each a name and a text.
    """
    head = ("task", "success", "time, s", "rad/s^2", "limit hits", "plan, ms", "95 %, ms")
    rows: list[tuple[str, ...]] = []
    for name, summary in summaries.items():
        if isinstance(summary, str):
            rows.append((name, f"FAILED: {summary}"))
            continue
        numbers = (summary.time_to_success_s, summary.acceleration)
        hits = "-" if summary.limit_hits is None else f"{summary.limit_hits:.1%}".replace("%", " %")
        times = (summary.inference_ms, summary.inference_p95_ms)
        rows.append((name, str(summary.rate), *map(_number, numbers), hits, *map(_number, times)))
        rows += [
            (f"  {stage}", str(rate))
            for stage, rate in summary.reached.items()
            if stage != "success"
        ]
        if summary.incomplete or summary.unstable:
            counts = f"incomplete: {summary.incomplete}, physics unstable: {summary.unstable}"
            rows.append(("  !", counts))
    return text_table(head, [*rows, *(statistics or {}).items()])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
