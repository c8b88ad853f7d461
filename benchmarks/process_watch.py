"""Memory and processor time of processes over time, for `soak.py`."""

from array import array
from dataclasses import dataclass, field

from stringline.real_robot.device.process_monitor import MEBIBYTE, Growth, processor_s, resident

WARM_UP, LEAST_S = 0.2, 240.0
KINDS, JUDGED = ("rss", "pss", "private"), "private"
COLUMNS = "{:<20} {:>9} {:>7} {:>7} {:>10} {:>7} {:>24} {:>6}"
HEAD = COLUMNS.format(
    "process",
    "RSS, MiB",
    "PSS",
    "own",
    "RSS grows",
    "PSS",
    "own, MiB / 10 min",
    "cores",
)


@dataclass
class WatchedProcess:
    """Memory of a process over time, in arrays, so that the record itself does not grow."""

    pid: int
    began_s: float
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    memory: "dict[str, array[int]]" = field(
        default_factory=lambda: {kind: array("q") for kind in KINDS}
    )
    processor_s: float = 0.0

    def look(self, now: float) -> None:
        """Takes a sample, if the process still runs."""
        if (found := resident(self.pid)) is not None:
            self.seconds.append(round(now, 3))
            for kind, sizes in self.memory.items():
                sizes.append(getattr(found, kind))
            self.processor_s = processor_s(self.pid) - self.began_s

    def growth(self, kind: str, lasts_s: float) -> Growth | None:
        """Returns the growth of a kind of memory after the first 20 % of the time, if known."""
        warm = [index for index, second in enumerate(self.seconds) if second >= WARM_UP * lasts_s]
        if len(warm) < 2:
            return None
        return Growth.of(
            [self.seconds[index] for index in warm], [self.memory[kind][index] for index in warm]
        )

    def to_dict(self, lasts_s: float) -> dict[str, object]:
        """Returns plain JSON."""
        growths = {kind: self.growth(kind, lasts_s) for kind in KINDS}
        return {
            "cores": round(self.processor_s / max(lasts_s, 1e-9), 3),
            "mib_per_10_minutes": {
                kind: None if one is None else round(one.mib, 4) for kind, one in growths.items()
            },
            "samples": {
                "s": list(self.seconds),
                **{kind: list(sizes) for kind, sizes in self.memory.items()},
            },
        }

    def line(self, name: str, lasts_s: float) -> str:
        """Returns a line of the table below `HEAD`."""
        sizes = (f"{self.memory[kind][-1] / MEBIBYTE:.1f}" for kind in KINDS)
        grown = (_grown(self.growth(kind, lasts_s), exactly=kind == JUDGED) for kind in KINDS)
        return COLUMNS.format(name, *sizes, *grown, f"{self.processor_s / max(lasts_s, 1e-9):.2f}")


def _grown(growth: Growth | None, *, exactly: bool) -> str:
    if growth is None:
        return "-"
    judged = "" if growth.span_s >= LEAST_S else " (short)"
    return (
        f"{growth.mib:+.2f} +- {growth.error_mib:.2f}{judged}" if exactly else f"{growth.mib:+.2f}"
    )
