"""What became of each evaluated episode: kept line by line in a file, so that an interrupted evaluation continues."""

import json
import logging
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from stringline.datasets.files.atomic import explained_full_disk, write_all, write_file
from stringline.sim.statistics.intervals import Rate

logger = logging.getLogger(__name__)

RESULTS = "results.jsonl"  # The name of the file in the folder of an evaluation.


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
        acceleration: Root mean square of the acceleration of the commanded joint targets, rad/s^2;
            smaller is smoother.
        trouble: Why it could not be run to its end and counts as failed, or nothing.
        inference_p95_ms: Milliseconds within which 95 % of the answers came; None where an older
            version measured.
        limit_hits: Share of control periods whose command asks for more than a joint's limits
            allow, see `measures.limit_hits`; None where an older version measured, and for bodies
            whose limits are not known.
        unstable: Whether the simulation itself became unstable.
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
    inference_p95_ms: float | None = None
    limit_hits: float | None = None
    unstable: bool = False


@dataclass(frozen=True)
class Summary:
    """All episodes in a few numbers; None where no episode has such a number.

    Attributes:
        rate: Successes of trials.
        time_to_success_s: Median over successes.
        inference_ms: Median over episodes.
        acceleration: Median over episodes, rad/s^2.
        stages: How many episodes got to each stage and no further, by name.
        reached: How many episodes got at least to each of these stages, but for the one in which
            all begin.
        inference_p95_ms: Median over episodes of what 95 % of an episode's answers stayed within.
        limit_hits: Mean over episodes, 0 to 1.
        troubled: How many episodes could not be run to their end; they count as failed.
        unstable: In how many the simulation became unstable.
    """

    rate: Rate
    time_to_success_s: float | None
    inference_ms: float | None
    acceleration: float | None
    stages: Mapping[str, int]
    reached: Mapping[str, Rate]
    inference_p95_ms: float | None
    limit_hits: float | None
    troubled: int
    unstable: int

    @classmethod
    def of(cls, results: Sequence[EpisodeResult]) -> Self:
        """Summarises results.

        Raises:
            ValueError: There are none.
        """
        if not results:
            raise ValueError("There are no results to summarise.")
        times = [result.time_s for result in results if result.success]
        in_order = sorted(results, key=lambda result: result.stage)
        names = [result.stage_name for result in in_order]
        measured = [
            result for result in results if result.plans
        ]  # The others ended before the policy was asked.
        hits = [result.limit_hits for result in measured if result.limit_hits is not None]
        return cls(
            rate=Rate(len(times), len(results)),
            time_to_success_s=_median(times),
            inference_ms=_median(result.inference_ms for result in measured),
            acceleration=_median(result.acceleration for result in measured),
            stages={name: names.count(name) for name in dict.fromkeys(names)},
            reached={
                result.stage_name: Rate(
                    sum(other.stage >= result.stage for other in results), len(results)
                )
                for result in in_order
                if result.stage
            },
            inference_p95_ms=_median(result.inference_p95_ms for result in measured),
            limit_hits=statistics.fmean(hits) if hits else None,
            troubled=sum(bool(result.trouble) for result in results),
            unstable=sum(result.unstable for result in results),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON."""
        reached = {name: rate.to_dict() for name, rate in self.reached.items()}
        return asdict(self) | {
            "rate": self.rate.to_dict(),
            "stages": dict(self.stages),
            "reached": reached,
        }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


class OtherEvaluationError(ValueError):
    """A file of results belongs to another evaluation."""


class ResultsFile:
    """A JSONL file: the first line says what is evaluated, each further line is the result of one seed.

    Attributes:
        path: The file.
        about: What is evaluated.
        results: By seed.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """Opens a file, or continues one; a last line that a crash cut short is dropped.

        Args:
            path: The file.
            about: What is evaluated, plain JSON: results of different things must not be mixed.

        Raises:
            OtherEvaluationError: The file belongs to another evaluation.
            ValueError: It is damaged, or a newer version wrote it.
            NoSpaceError: The disk is full.
        """
        self.path = path
        self.about: dict[str, Any] = json.loads(json.dumps(dict(about)))
        header, self.results = ({}, {}) if not path.exists() else read_results(path)
        if header and header != self.about:
            raise OtherEvaluationError(
                f"{path} holds results of another evaluation ({difference(header, self.about)}). "
                f"Choose another folder."
            )
        lines = [{"about": self.about}, *(asdict(result) for result in self.results.values())]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def add(self, result: EpisodeResult) -> None:
        """Appends a result; it is on the disk when this returns.

        Raises:
            NoSpaceError: The disk is full; the file is as it was before.
        """
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                with explained_full_disk(self.path):
                    write_all(descriptor, memoryview((json.dumps(asdict(result)) + "\n").encode()))
                    os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        self.results[result.seed] = result


def read_results(path: Path) -> tuple[dict[str, Any], dict[int, EpisodeResult]]:
    """Reads a file of results.

    Returns:
        What was evaluated, empty where not even that line is whole; and the results by seed.

    Raises:
        ValueError: A line before the last is damaged, the file holds something else, or a newer
            version wrote it.
    """
    lines = _whole_lines(path)
    if not lines:
        return {}, {}
    if not isinstance(about := lines[0].get("about"), dict):
        raise ValueError(
            f"{path} holds no results of an evaluation: its first line does not say what was "
            f"evaluated."
        )
    found = [_result(line, f"{path}, line {number}") for number, line in enumerate(lines[1:], 2)]
    return about, {result.seed: result for result in found}


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Says which settings of two evaluations differ, the first three of them."""
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return ", ".join(f"{key}: {there.get(key)!r} there, {here.get(key)!r} here" for key in keys[:3])


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            line = None
        if isinstance(line, dict):
            lines.append(line)
        elif number == len(texts):
            logger.warning("The last line of %s was cut short; that episode is run again.", path)
        else:
            raise ValueError(
                f"{path} is damaged at line {number} of {len(texts)}. Remove that line to go on "
                f"without it."
            )
    return lines


def _result(line: Mapping[str, Any], where: str) -> EpisodeResult:
    known = {field.name: field.default is MISSING for field in fields(EpisodeResult)}
    if unknown := [name for name in line if name not in known]:
        raise ValueError(
            f"{where} has numbers that this version does not know: {', '.join(unknown)}. Update "
            f"Stringline."
        )
    if missing := [name for name, needed in known.items() if needed and name not in line]:
        raise ValueError(f"{where} lacks {', '.join(missing)}: it is no result of an evaluation.")
    return EpisodeResult(**line)
