"""A copy of a store with another rate of steps, in which everything stays at its time.

Measured values, targets and poses are interpolated, images are not: a step shows the frame that the
nearest recorded step showed. Switches, stages and other labels keep each of their values, rewards
their sum. A copy that would not be right is refused, with the episode and the reason.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.contract.contract import PER_STEP, SERIES, ActionDimension, Array, Contract
from stringline.datasets.editing.derived_stores import check_completes
from stringline.datasets.embodiments.transforms import angle_between, between
from stringline.datasets.files.atomic import check_space, exclusive
from stringline.datasets.loading.window_settings import turning_points
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore, for_each_episode

Relative = Literal["refuse", "sum"]

_SAME = 1e-6  # Share of a period: equal times differ by rounding.
_PER_FRAME = ("rgb", "depth", "segmentation", "time", "T_base_camera")
_MOST_MISSING = 3  # Periods without a step that are interpolated by default.
_RATE_OFF = 0.1  # Share by which the times of the steps may differ from the rate of the contract.
_LARGEST_TURN = 1.0  # rad between two steps; above, an angle has wrapped.
_LARGEST_SUM = 0.3  # rad; larger rotations about different axes do not add.


@dataclass(frozen=True)
class Grid:
    """The times of the new steps (N,) among those of the recorded ones (T,), s.

    Attributes:
        old: Recorded times.
        new: New times: the first one is that of the recording, and the last one not before its end.
        before: The recorded step before each new one (N,).
        share: The place between it and the next one (N,), 0 to 1.
    """

    old: NDArray[np.float64]
    new: NDArray[np.float64]
    before: NDArray[np.intp]
    share: NDArray[np.float64]

    @classmethod
    def of(cls, old: NDArray[np.float64], old_hz: float, rate_hz: float) -> "Grid":
        """Returns the steps of an episode at another rate."""
        periods = (old[-1] - old[0]) * rate_hz
        # A quarter of a period is the tolerance, so that jitter adds no step.
        count = max(0, int(np.ceil(periods - 0.25 * min(1, rate_hz / old_hz)))) + 1
        new = old[0] + np.arange(count) / rate_hz
        before = np.clip(np.searchsorted(old, new, side="right") - 1, 0, max(len(old) - 2, 0))
        after = np.minimum(before + 1, len(old) - 1)
        length = np.where(after > before, old[after] - old[before], 1.0)
        share = np.clip((new - old[before]) / length, 0, 1)
        share = np.where(np.abs(share - np.rint(share)) < _SAME, np.rint(share), share)
        return cls(old, new, before, share)

    @property
    def after(self) -> NDArray[np.intp]:
        """The recorded step after each new one (N,)."""
        return np.minimum(self.before + 1, len(self.old) - 1)

    @property
    def nearest(self) -> NDArray[np.intp]:
        """The nearest recorded step (N,), of two the earlier one."""
        return np.where(self.share > 0.5 + _SAME, self.after, self.before)

    def linear(self, values: Array, largest: float = np.inf) -> Array:
        """Interpolates rows (T, ...) to (N, ...); the nearest one where they differ by more."""
        share = self.share.reshape(-1, *[1] * (values.ndim - 1))
        first = values[self.before].astype(np.float64)
        second = values[self.after].astype(np.float64)
        mixed = (1 - share) * first + share * second
        jumps = np.abs(second - first) > largest
        return np.where(jumps, values[self.nearest], mixed).astype(values.dtype)

    def poses(self, values: Array) -> Array:
        """Interpolates poses (T, 4, 4) to (N, 4, 4), with a fixed axis between two of them."""
        result = values[self.nearest].astype(np.float64)
        for step in np.flatnonzero((self.share > 0) & (self.share < 1)):
            start, goal = (
                values[each[step]].astype(np.float64) for each in (self.before, self.after)
            )
            if angle_between(start[:3, :3], goal[:3, :3]) < 3:
                result[step] = between(start, goal, float(self.share[step]))
        return result.astype(values.dtype)

    def labels(self, values: Array) -> Array | None:
        """Returns the values (N,) of labels (T,), each of which lasts for at least one step.

        A change moves by at most one new step. None if there are more changes than that allows.
        """
        starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
        wanted = np.searchsorted(self.nearest, starts)
        places = np.arange(len(starts))
        moved = np.maximum.accumulate(wanted - places) + places
        if (moved - wanted).max() > 1 or moved[-1] >= len(self.new):
            return None
        run = np.searchsorted(moved, np.arange(len(self.new)), side="right") - 1
        return values[starts[run]]

    def sums(self, values: Array) -> Array:
        """Adds amounts (T,), such as rewards, to the nearest new step (N,)."""
        centres = (self.new[1:] + self.new[:-1]) / 2
        result = np.zeros(len(self.new))
        np.add.at(result, np.searchsorted(centres, self.old), values)
        return result.astype(values.dtype)

    def motions(self, values: Array) -> Array:
        """Returns the motions (N, ...) in each new step of motions (T, ...) that add up."""
        period = float(np.median(np.diff(self.old))) if len(self.old) > 1 else 1.0
        ends = np.append(self.old, self.old[-1] + period)
        path = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, 0, np.float64)])
        edges = np.append(self.new, max(self.new[-1], ends[-1]))
        flat = path.reshape(len(path), -1)
        at = np.stack([np.interp(edges, ends, column) for column in flat.T], axis=1)
        return np.diff(at, axis=0).reshape(len(self.new), *values.shape[1:]).astype(values.dtype)


@dataclass(frozen=True)
class RateChange:
    """The settings of a copy at another rate.

    Attributes:
        rate_hz: New steps per second.
        relative: Actions relative to the measured state: refuse, or sum to add those of a new step.
        largest_gap_s: Largest time between two recorded steps that is interpolated, s; None: three
            periods.
        leave_out: Series to leave out, such as [series/contact].
    """

    rate_hz: float
    relative: Relative = "refuse"
    largest_gap_s: float | None = None
    leave_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        POSITIVE.check(rate_hz=self.rate_hz)
        if self.largest_gap_s is not None:
            POSITIVE.check(largest_gap_s=self.largest_gap_s)
        if self.relative not in get_args(Relative):
            raise unknown_name("rule for relative actions", self.relative, get_args(Relative))

    def contract(self, contract: Contract) -> Contract:
        """Returns the contract of the copy."""
        return replace(contract, control_hz=float(self.rate_hz))

    def arrays(self, episode: StoredEpisode) -> dict[str, Array]:
        """Returns the new arrays of an episode, without those that stay and those of its frames.

        Raises:
            ValueError: An array cannot be resampled.
        """
        try:
            grid = self._grid(episode)
            kept = {key for key in episode.entries if not _is_of_camera(key, episode)}
            wanted = sorted(kept - set(self.leave_out))
            found = {key: self._array(key, episode, grid) for key in wanted}
        except ValueError as error:
            raise ValueError(f"Episode {episode.name}: {error}") from error
        for camera in episode.attributes.contract.cameras:
            key = f"frame/{camera.name}"
            shown = np.unique(found[key], return_inverse=True)[1]
            found[key] = shown.reshape(-1).astype(np.int32)
        return found

    def frames(self, episode: StoredEpisode) -> dict[str, Array]:
        """Returns the numbers of the frames that the new steps show, by camera."""
        nearest = self._grid(episode).nearest
        names = [camera.name for camera in episode.attributes.contract.cameras]
        return {name: np.unique(episode.arrays[f"frame/{name}"][nearest]) for name in names}

    def _grid(self, episode: StoredEpisode) -> Grid:
        """Returns the new steps; the recorded ones must have the rate of the contract."""
        time = np.asarray(episode.arrays["time"])
        hz = episode.attributes.contract.control_hz
        lengths = np.diff(time)
        if len(lengths) and abs(np.median(lengths) * hz - 1) > _RATE_OFF:
            raise ValueError(
                f"its steps are {np.median(lengths):.6g} s apart, its contract says {hz:g} Hz. "
                "Import it again with its true rate."
            )
        largest = self.largest_gap_s or _MOST_MISSING / hz
        if len(lengths) and lengths.max() > 1.01 * largest:
            step = int(np.argmax(lengths))
            raise ValueError(
                f"no step is between {time[step] - time[0]:.3f} and {time[step + 1] - time[0]:.3f} "
                f"s; allowed: largest_gap_s={largest:.3g}. `stringline-data split` and `delete` "
                "remove the gap."
            )
        return Grid.of(time, hz, self.rate_hz)

    def _array(self, key: str, episode: StoredEpisode, grid: Grid) -> Array:
        values = np.asarray(episode.arrays[key])
        dimensions = episode.attributes.contract.action
        rules: dict[str, Callable[[], Array]] = {
            "time": lambda: grid.new,
            "action": lambda: self._actions(values, dimensions, grid),
            "reward": lambda: grid.sums(values),
            "stage": lambda: _labels(key, values, grid),
            "frame/": lambda: values[grid.nearest],
            "joints/": lambda: grid.linear(values, np.pi),
            "T_base_gripper/": lambda: grid.poses(values),
            "sim/": lambda: values[grid.nearest],
            SERIES: lambda: _series(key, values, grid),
        }
        rule = rules.get(key) or rules.get(f"{key.partition('/')[0]}/")
        if rule is None:
            raise ValueError(f"{key} has no rule for another rate.")
        return rule()

    def _actions(self, values: Array, dimensions: tuple[ActionDimension, ...], grid: Grid) -> Array:
        """Returns actions (N, A): targets are interpolated, a switched gripper keeps its values."""
        relative = [place for place, each in enumerate(dimensions) if each.mode == "relative"]
        if relative and self.relative == "refuse":
            names = ", ".join(dimensions[place].name for place in relative[:3])
            raise ValueError(
                f"the actions {names}{', ...' if len(relative) > 3 else ''} are relative to the "
                "measured state, and how far a step gets in another time is not recorded. "
                "relative=sum adds them up, which is right for a robot that reaches each target "
                "within its step."
            )
        result = grid.linear(values)
        for place, dimension in enumerate(dimensions):
            if dimension.mode == "relative":
                result[:, place] = grid.motions(values[:, place])
            elif dimension.kind == "joint":
                result[:, place] = grid.linear(values[:, place], np.pi)
            elif dimension.kind == "gripper":
                result[:, place] = _gripper(dimension.name, values[:, place], grid)
        for places in _rotations(dimensions):
            if dimensions[places[0]].mode == "relative":
                _check_rotations(values[:, places], grid)
                continue
            turns = (values[grid.after] - values[grid.before])[:, places]
            wrapped = np.ix_(np.linalg.norm(turns, axis=1) > _LARGEST_TURN, places)
            result[wrapped] = values[grid.nearest][wrapped]
        return result


def _rotations(dimensions: tuple[ActionDimension, ...]) -> list[list[int]]:
    """Returns the places of the numbers of each rotation of an action."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for place, each in enumerate(dimensions):
        if each.kind == "rotation":
            found.setdefault((each.arm, each.frame, each.mode), []).append(place)
    return list(found.values())


def _check_rotations(vectors: Array, grid: Grid) -> None:
    """Checks that the rotation vectors (T, D) in each new step add up, as small ones do."""
    total = grid.motions(np.linalg.norm(vectors, axis=1))
    net = np.linalg.norm(grid.motions(vectors), axis=1)
    wrong = (total > _LARGEST_SUM) & (net < 0.999 * total)
    if wrong.any():
        step = int(np.argmax(wrong))
        raise ValueError(
            f"the action turns by {total[step]:.3g} rad at {grid.new[step] - grid.new[0]:.2f} s, "
            f"about several axes; allowed: {_LARGEST_SUM} rad in a new step. Choose a larger "
            "rate_hz."
        )


def _gripper(name: str, values: Array, grid: Grid) -> Array:
    """Returns openings (N,): those of a switch keep both values, others are interpolated.

    Raises:
        ValueError: The gripper turns more often than the new steps show.
    """
    if len(np.unique(values)) <= 2:
        return _labels(f"the command of {name}", values, grid)
    found = grid.linear(values)
    before, after = (len(turning_points(each.astype(np.float64))) for each in (values, found))
    if before != after:
        raise ValueError(
            f"the command of {name} turns {max(before - 2, 0)} times, at the new rate "
            f"{max(after - 2, 0)} times. Choose a larger rate_hz."
        )
    return found


def _labels(key: str, values: Array, grid: Grid) -> Array:
    found = grid.labels(values)
    if found is None:
        raise ValueError(
            f"{key} changes {np.count_nonzero(np.diff(values))} times, some of them faster than "
            "the new steps. Choose a larger rate_hz, or, if it is a series, leave it out with "
            f"leave_out=[{key}]."
        )
    return found


def _series(key: str, values: Array, grid: Grid) -> Array:
    """Returns a series (N, ...), number by number."""
    columns = values.reshape(len(values), -1)
    result = grid.linear(columns)
    for place, column in enumerate(columns.T):
        result[:, place] = _numbers(key, column, grid)
    return result.reshape(len(result), *values.shape[1:])


def _numbers(key: str, values: Array, grid: Grid) -> Array:
    """Returns numbers (N,): flags and whole numbers are labels, others are measured.

    Whole numbers that change too fast for labels, such as those of a counter, are the nearest ones.
    """
    flags = key == PER_STEP or len(np.unique(values)) <= 2
    if not flags and (values != np.rint(values)).any():
        return grid.linear(values)
    if flags:
        return _labels(key, values, grid)
    found = grid.labels(values)
    return values[grid.nearest] if found is None else found


def _is_of_camera(key: str, episode: StoredEpisode) -> bool:
    """Returns whether an array has a row for each frame of a camera, or one for all."""
    kind, _, name = key.partition("/")
    cameras = [camera.name for camera in episode.attributes.contract.cameras]
    return kind in (*_PER_FRAME, "intrinsics") and name in cameras


def resample(
    store: EpisodeStore, path: Path, change: RateChange, *, workers: int = 2
) -> EpisodeStore:
    """Creates or completes a copy of a store with another rate of steps.

    Images of all frames that the steps show are shared on the same disk, others are copied.

    Raises:
        ValueError: An episode cannot be resampled, then nothing is written; or the copy holds
            episodes that the store lacks, or of other settings.
    """
    episodes = store.episodes()
    check_completes(path, [episode.name for episode in episodes])
    offered = {key for episode in episodes for key in episode.entries if key.startswith(SERIES)}
    for key in change.leave_out:
        if key not in offered:
            raise unknown_name("series to leave out", key, sorted(offered))
    there = (
        {each.name: each for each in EpisodeStore.open(path).episodes()} if path.exists() else {}
    )
    for each in there.values():
        if each.attributes.extra.get("resampled") != _record(change, each.name):
            raise ValueError(
                f"{path} has episodes of another rate or of other settings, such as {each.name}. "
                "Choose another folder."
            )
    sizes = {each.name: _size(each, change) for each in episodes if each.name not in there}
    copy = EpisodeStore.create(path)
    with exclusive(copy.path):
        copy.remove_leftovers()
        missing = [name for name in sizes if name not in set(copy.names())]
        check_space(copy.path, sum(sizes[name] for name in missing))
        for_each_episode(
            lambda name: _copy(store.episode(name), copy.path, change), missing, workers, "resample"
        )
    return copy


def _record(change: RateChange, name: str) -> dict[str, Any]:
    """Returns the record of a change in the attributes of a new episode."""
    settings = {**asdict(change), "leave_out": list(change.leave_out)}
    return {"of": name, **settings}


def _size(episode: StoredEpisode, change: RateChange) -> int:
    """Returns the bytes of the copy of an episode."""
    frames = change.frames(episode)
    total = sum(array.nbytes for array in change.arrays(episode).values())
    for key, entry in episode.entries.items():
        if _is_of_camera(key, episode):
            rows = entry.shape[0] if _per_frame(key, episode) else 1
            kept = len(frames[key.partition("/")[2]]) if _per_frame(key, episode) else 1
            total += entry.nbytes // rows * kept
    return total


def _per_frame(key: str, episode: StoredEpisode) -> bool:
    """Returns whether an array of a camera has a row for each frame."""
    kind = key.partition("/")[0]
    fixed = kind == "T_base_camera" and len(episode.entries[key].shape) == 2
    return kind in _PER_FRAME and not fixed


def _copy(episode: StoredEpisode, root: Path, change: RateChange) -> None:
    episode.check_undamaged()
    old = episode.attributes
    frames = change.frames(episode)
    attributes = replace(
        old,
        contract=change.contract(old.contract),
        extra={**old.extra, "resampled": _record(change, episode.name)},
    )
    of_cameras = [key for key in episode.entries if _is_of_camera(key, episode)]
    cut = {
        key: frames[name]
        for key in of_cameras
        if _per_frame(key, episode)
        for name in [key.partition("/")[2]]
        if len(frames[name]) < episode.entries[key].shape[0]
    }
    with EpisodeWriter(
        root, episode.name, attributes, expected_bytes=_size(episode, change)
    ) as writer:
        writer.take_over(episode, [key for key in of_cameras if key not in cut])
        for key, array in change.arrays(episode).items():
            writer.put(key, array)
        for key, numbers in cut.items():
            rows = episode.arrays[key]
            for number in numbers:
                writer.append(key, rows[number])
        writer.commit()
