"""Results of evaluated episodes: metrics, their file, statistics, and tables for a terminal.

Results are stored line by line, to continue an interrupted evaluation. Metrics of commands are
requests beyond the limits of joints, and smoothness. Tables have rows that span columns, which the
library `tabulate` lacks.
"""

import json
import logging
import os
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.files.atomic import explained_full_disk, write_all, write_file
from stringline.sim.statistics.intervals import Attempt, Rate, rates_alone

_POSITION_SLACK_RAD = 1e-3  # A target within this distance of a limit counts as a hit.
_SPEED_SLACK = 1e-3  # Relative rounding error of the differences of 32-bit targets.


def limit_hits(actions: NDArray[Any], contract: Contract) -> float | None:
    """Returns the share of control periods, 0 to 1, whose command exceeds a joint's limits.

    Commands (T, A) are in the units of the contract, one for each control period. For an unknown
    embodiment the result is None.

    A period counts when the target of at least one joint lies at or beyond a position limit (to
    0.001 rad), or when the step from the previous target exceeds the largest speed of the joint by
    more than 0.1 %; the first period has no speed. Grippers do not count, because open and closed
    are their limits. Relative and Cartesian commands do not count either. A filter or a servo would
    clip such commands, so the arm would not follow the policy.
    """
    embodiment = embodiment_of(contract)
    if embodiment is None:
        return None
    joints = {
        joint.name: index
        for index, joint in enumerate(embodiment.joints)
        if joint.kind == "revolute"
    }
    columns = [
        index
        for index, dimension in enumerate(contract.action)
        if dimension.kind == "joint" and dimension.mode == "absolute" and dimension.name in joints
    ]
    if not len(actions) or not columns:
        return 0.0
    indices = [joints[contract.action[column].name] for column in columns]
    targets = actions[:, columns].astype(np.float64)
    lower = embodiment.lower[indices] + _POSITION_SLACK_RAD
    upper = embodiment.upper[indices] - _POSITION_SLACK_RAD
    hits = (targets <= lower) | (targets >= upper)
    speeds = np.abs(np.diff(targets, axis=0)) * contract.control_hz
    hits[1:] |= speeds > embodiment.velocity_limits[indices] * (1 + _SPEED_SLACK)
    return float(np.mean(hits.any(axis=1)))


def command_acceleration(actions: NDArray[Any], contract: Contract) -> float:
    """Returns the root mean square of the second difference of joint commands (T, A), rad/s^2.

    Grippers do not count. Without joint commands, or for fewer than three actions, it is 0.
    """
    joints = [index for index, dimension in enumerate(contract.action) if dimension.kind == "joint"]
    second = np.diff(actions[:, joints].astype(np.float64), n=2, axis=0) * contract.control_hz**2
    return float(np.sqrt(np.mean(second**2))) if second.size else 0.0


logger = logging.getLogger(__name__)

RESULTS = "results.jsonl"  # Name of the file in the folder of an evaluation.


@dataclass(frozen=True)
class EpisodeResult:
    """The result of one episode.

    Attributes:
        seed: Seed of the initial state and of the policy's random numbers.
        success: Whether the task was done before the time limit.
        stage: The furthest stage.
        time_s: Simulated seconds until success, or the time limit.
        inference_ms: Median time of a plan, measured where the policy runs.
        acceleration: See `command_acceleration`; smaller is smoother.
        error: Reason why the episode was not completed and counts as failed; empty if completed.
        inference_p95_ms: 95th percentile of the time of a plan; None without plans.
        limit_hits: See `limit_hits`; None for embodiments with unknown limits.
        unstable: Whether the physics became unstable.
        drawn: What the episode has drawn by option, such as looks; empty without ranges and looks.
    """

    seed: int
    success: bool
    stage: int
    stage_name: str
    time_s: float
    plans: int
    inference_ms: float
    acceleration: float
    error: str = ""
    inference_p95_ms: float | None = None
    limit_hits: float | None = None
    unstable: bool = False
    drawn: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def measured(
        cls, actions: NDArray[Any], answer_ms: Sequence[float], contract: Contract, **outcome: Any
    ) -> Self:
        """Returns the result of a completed episode with its metrics.

        Args:
            actions: Executed commands (T, A), one for each control period.
            answer_ms: Times of the plans, at least one.
            contract: Contract of the actions.
            outcome: `seed`, `success`, `stage`, `stage_name`, `time_s` and, optionally, `unstable`
                and `drawn`.
        """
        return cls(
            **outcome,
            plans=len(answer_ms),
            inference_ms=float(np.median(answer_ms)),
            acceleration=command_acceleration(actions, contract),
            inference_p95_ms=float(np.percentile(answer_ms, 95)),
            limit_hits=limit_hits(actions, contract),
        )


@dataclass(frozen=True)
class Summary:
    """Statistics of all episodes; None where no episode has a value.

    Attributes:
        time_to_success_s: Median over successes.
        inference_ms: Median over episodes.
        acceleration: Median over episodes, rad/s^2.
        stages: Number of episodes that ended in each stage, by name.
        reached: Rate of episodes that reached each stage, by name; without the first stage.
        inference_p95_ms: Median over episodes.
        limit_hits: Mean over episodes, 0 to 1.
        incomplete: Number of episodes with an error; they count as failed.
        unstable: Number of episodes with unstable physics.
    """

    rate: Rate
    time_to_success_s: float | None
    inference_ms: float | None
    acceleration: float | None
    stages: Mapping[str, int]
    reached: Mapping[str, Rate]
    inference_p95_ms: float | None
    limit_hits: float | None
    incomplete: int
    unstable: int

    @classmethod
    def of(cls, results: Sequence[EpisodeResult]) -> Self:
        """Summarises at least one result."""
        if not results:
            raise ValueError("There are no results to summarise.")
        times = [result.time_s for result in results if result.success]
        in_order = sorted(results, key=lambda result: result.stage)
        names = [result.stage_name for result in in_order]
        measured = [result for result in results if result.plans]
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
            incomplete=sum(bool(result.error) for result in results),
            unstable=sum(result.unstable for result in results),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the summary as plain JSON."""
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
    """A results file belongs to another evaluation."""


class ResultsFile:
    """A JSONL file: the first line describes the evaluation, each further line is one result.

    An existing file is continued; a last line that a crash cut short is dropped. A new file is
    written with the first result, so an evaluation that cannot start leaves none.

    `about`, the evaluated policy and task as plain JSON, must agree with an existing file.

    Raises:
        OtherEvaluationError: The file belongs to another evaluation.
        ValueError: The file is damaged, or a newer version wrote it.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.about: dict[str, Any] = json.loads(json.dumps(dict(about)))
        header, self.results = ({}, {}) if not path.exists() else read_results(path)
        if header and header != self.about:
            raise OtherEvaluationError(
                f"{path} holds results of another evaluation ({difference(header, self.about)}). "
                f"Choose another folder."
            )
        if path.exists():
            self._write()

    def add(self, result: EpisodeResult) -> None:
        """Appends a result and waits until it is on the disk.

        Raises:
            NoSpaceError: The disk is full; the file is unchanged.
        """
        if not self.path.exists():
            self._write()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                with explained_full_disk(self.path):
                    write_all(descriptor, memoryview((json.dumps(_line(result)) + "\n").encode()))
                    os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        self.results[result.seed] = result

    def _write(self) -> None:
        lines = [{"about": self.about}, *map(_line, self.results.values())]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def read_results(path: Path) -> tuple[dict[str, Any], dict[int, EpisodeResult]]:
    """Returns the evaluated policy and task, empty if that line is damaged; and results by seed.

    Raises:
        ValueError: A line before the last one is damaged, or the file holds no results.
    """
    lines = _whole_lines(path)
    if not lines:
        return {}, {}
    if not isinstance(about := lines[0].get("about"), dict):
        raise ValueError(
            f"{path} holds no results of an evaluation: its first line does not describe one."
        )
    found = [_result(line, f"{path}, line {number}") for number, line in enumerate(lines[1:], 2)]
    return about, {result.seed: result for result in found}


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Returns the first three settings that differ between two evaluations as text."""
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
            logger.warning("The last line of %s is incomplete; that episode is run again.", path)
        else:
            raise ValueError(
                f"{path} is damaged at line {number} of {len(texts)}. Remove that line to continue."
            )
    return lines


def _line(result: EpisodeResult) -> dict[str, Any]:
    """Returns the line of a result, without `drawn` if the episode has drawn nothing."""
    line = asdict(result)
    return line if result.drawn else {name: line[name] for name in line if name != "drawn"}


def _result(line: Mapping[str, Any], where: str) -> EpisodeResult:
    known = {
        each.name: each.default is MISSING and each.default_factory is MISSING
        for each in fields(EpisodeResult)
    }
    if unknown := [name for name in line if name not in known]:
        raise ValueError(
            f"{where} has fields that this version does not know: {', '.join(unknown)}. Update "
            f"Stringline."
        )
    if missing := [name for name, needed in known.items() if needed and name not in line]:
        raise ValueError(
            f"{where} is not a result of an evaluation: it lacks {', '.join(missing)}."
        )
    return EpisodeResult(**line)


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


def attempts_table(attempts: Sequence[Attempt]) -> str:
    """Returns the success rates of the policy of a session alone, by instruction."""
    helped = Counter(one.instruction for one in attempts if one.helped)
    rows = [
        (
            instruction,
            f"{rate.trials}",
            f"{helped[instruction]}",
            f"{rate.value * 100:.0f} %",
            f"[{rate.low * 100:.0f}, {rate.high * 100:.0f}]",
        )
        for instruction, rate in rates_alone(attempts).items()
    ]
    return text_table(("instruction", "episodes", "helped", "alone", "95 %"), rows, words=(0,))


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
