"""What became of each evaluated episode: kept line by line in a file, so that an interrupted evaluation continues."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from stringline.datasets.intervals import Rate


@dataclass(frozen=True)
class EpisodeResult:
    """One episode.

    Attributes:
        seed: It decided the start of the world and the policy's random numbers.
        success: Whether the task was done before the time limit.
        stage: The furthest stage reached.
        stage_name: Its name.
        time_s: Simulated seconds when it ended: the time to success, or the time limit.
        plans: How often the policy was asked.
        inference_ms: Median milliseconds per answer, measured where the policy runs.
        acceleration: Root mean square of the acceleration of the commanded joint targets, rad/s^2; smaller is smoother.
        trouble: Why it could not be run to its end and counts as failed, or nothing.
    """

    seed: int
    success: bool
    stage: int
    stage_name: str
    time_s: float
    plans: int
    inference_ms: float
    acceleration: float
    trouble: str = ""


@dataclass(frozen=True)
class Summary:
    """All episodes in a few numbers.

    Attributes:
        rate: Successes of trials.
        time_to_success_s: Median over successes; None without one.
        inference_ms: Median over episodes.
        acceleration: Median over episodes, rad/s^2.
        stages: How many episodes got to each stage and no further, by name.
    """

    rate: Rate
    time_to_success_s: float | None
    inference_ms: float
    acceleration: float
    stages: Mapping[str, int]

    @classmethod
    def of(cls, results: Sequence[EpisodeResult]) -> Self:
        """Summarises results.

        Raises:
            ValueError: There are none.
        """
        if not results:
            raise ValueError("There are no results to summarise.")
        times = [result.time_s for result in results if result.success]
        names = [result.stage_name for result in sorted(results, key=lambda result: result.stage)]
        return cls(
            rate=Rate(len(times), len(results)),
            time_to_success_s=statistics.median(times) if times else None,
            inference_ms=statistics.median(result.inference_ms for result in results),
            acceleration=statistics.median(result.acceleration for result in results),
            stages={name: names.count(name) for name in dict.fromkeys(names)},
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON."""
        return asdict(self) | {"rate": self.rate.to_dict(), "stages": dict(self.stages)}


class ResultsFile:
    """A JSONL file: the first line says what is evaluated, each further line is the result of one seed."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """Opens a file, or continues one; a last line that a crash cut short is dropped.

        Args:
            path: The file.
            about: What is evaluated, plain JSON: results of different things must not be mixed.

        Raises:
            ValueError: The file belongs to another evaluation.
        """
        self.path = path
        lines = _whole_lines(path)
        plain = json.loads(json.dumps(dict(about)))
        if lines and lines[0].get("about") != plain:
            raise ValueError(
                f"{path} holds results of another evaluation ({_difference(lines[0], plain)}). Choose another folder."
            )
        self.results = {line["seed"]: EpisodeResult(**line) for line in lines[1:]}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in (lines or [{"about": plain}]))
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    def add(self, result: EpisodeResult) -> None:
        """Appends a result."""
        self.results[result.seed] = result
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def _difference(header: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    old = header.get("about", {})
    keys = [key for key in {**old, **about} if old.get(key) != about.get(key)]
    return ", ".join(f"{key}: {old.get(key)!r} there, {about.get(key)!r} here" for key in keys[:3]) or "no description"
