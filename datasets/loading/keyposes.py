"""Keyposes: the poses of the grippers at the events of a recording, and the ways to and from them.

A recording is a sequence of reaches. Each ends with an event: a gripper closes or opens while its
arm stands still, or an arm that holds something comes to a stop at the end. A policy that predicts
the next keypose is free of postures, pauses and speeds: every frame before an event is an example
of the same target (James and Davison, 2022, arXiv 2105.14829, who found keyposes by the same two
signs; Shridhar et al., PerAct, CoRL 2022, arXiv 2209.05451). Departures from PerAct: a stop of an
empty arm is no keypose if the recording has gripper events, since people pause; and the straight
part before an event, the corner before that and the departure are read from the recording, because
objects such as racks and sockets can be entered in one direction only.

Arrays have the arms on their second axis, in the order of `Contract.arms`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.arm_commands import ArmCommands, arm_commands
from stringline.datasets.embodiments.transforms import angle_between
from stringline.datasets.loading.window_settings import (
    REST,
    REST_S,
    STROKE,
    KeyposeSettings,
    turning_points,
)
from stringline.datasets.store.episode import StoredEpisode

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NO_EVENT = -1
FLIGHT_S = 0.5
"""Time within which a stroke that begins in flight has reached what it is for, s."""
TURN_RAD = 0.6
"""Angle from which a bend of a way is a corner, rad."""
REACHED_M = 0.025
"""Distance from a corner within which it counts as reached, m."""
STRAIGHT = 0.15
"""Largest deviation from the line of a straight departure, as a share of its length."""
PREFIX = "keypose/"


@dataclass(frozen=True)
class Keyposes:
    """The K keyposes of an episode with N arms, in the order of time.

    Attributes:
        start: (K,) first step of the event, at which the pose is reached.
        end: (K,) last step of the event, at which the gripper has arrived.
        acting: (K, N) whether the gripper of an arm acts, or the arm stops while it holds.
        pose: (K, N, 4, 4) `T_base_gripper` of each arm at `start`; of a further arm that acts a
            little later, at its own start.
        approach: (K, N, 4, 4) the beginning of the straight part before it.
        corner: (K, N, 4, 4) the corner before that, or the approach where there is none.
        departure: (K, N, 4, 4) a pose after it.
        before: (K, N) opening at the same step.
        after: (K, N) opening at `end`.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    acting: Flags
    pose: Floats
    approach: Floats
    corner: Floats
    departure: Floats
    before: Floats
    after: Floats

    def __len__(self) -> int:
        return len(self.start)

    def next_of(self, steps: Array) -> NDArray[np.int64]:
        """Returns the keypose (N,) that follows each of the steps (N,); `NO_EVENT` after the last.

        Steps between start and end of an event, see `during`, belong to the following keypose.
        """
        number = np.searchsorted(self.start, steps, side="left")
        return np.where(number < len(self), number, NO_EVENT).astype(np.int64)

    def during(self, steps: Array) -> Flags:
        """Returns whether an event is going on at each of the steps (N,), between start and end."""
        inside = (steps[:, None] > self.start) & (steps[:, None] <= self.end)
        return np.asarray(inside.any(axis=1))

    def targets(self, steps: Array) -> dict[str, Array]:
        """Returns the training targets of the frames at some steps (N,), by key of a batch.

        `keypose/holds` (N, arms) is `holding`. `keypose/number` (N,) is `NO_EVENT` after the last
        event, where the other entries are those of the last keypose and have no meaning.
        """
        number = self.next_of(steps)
        row = np.where(number == NO_EVENT, len(self) - 1, number)
        poses = {name: getattr(self, name) for name in ("pose", "approach", "corner", "departure")}
        openings = {"before": self.before, "after": self.after}
        found: dict[str, Array] = {
            f"{PREFIX}{name}": array[row].astype(np.float32)
            for name, array in (poses | openings).items()
        }
        found[f"{PREFIX}acting"] = self.acting[row] & (number != NO_EVENT)[:, None]
        found[f"{PREFIX}number"] = number
        found[f"{PREFIX}holds"] = self.holding(steps)
        return found

    def holding(self, steps: Array) -> Flags:
        """Returns whether each gripper holds something, (N, arms), at steps (N,): it has closed."""
        held = np.zeros((len(steps), self.acting.shape[1]), bool)
        for row in range(len(self)):
            strokes = self.acting[row] & (np.abs(self.after[row] - self.before[row]) > 0.02)
            later = steps > self.start[row]
            held[np.ix_(later, strokes)] = (self.after[row] < self.before[row])[strokes]
        return held


class NoKeyposeError(ValueError):
    """A recording has no keypose."""


@dataclass(frozen=True)
class Motion:
    """The commanded motion of a recording with T steps and N arms.

    Attributes:
        pose: (T, N, 4, 4) `T_base_gripper`.
        opening: (T, N) of the grippers, 0 to 1; a constant for arms without one.
        control_hz: Steps per second.
    """

    pose: Floats
    opening: Floats
    control_hz: float

    def steps(self, seconds: float) -> int:
        """Returns a time in steps, at least 1."""
        return max(round(seconds * self.control_hz), 1)


def commanded_motion(
    action: Array, commands: ArmCommands, control_hz: float, measured: Array | None = None
) -> Motion:
    """Returns the motion of actions (T, A).

    Args:
        action: The actions.
        commands: What they command.
        control_hz: Actions per second.
        measured: (S, N, 4, 4) measured `T_base_gripper` of the first S steps, for
            `CartesianCommands`.
    """
    return Motion(*commands.motion(action.astype(np.float64), measured), control_hz)


def measured_poses(episode: StoredEpisode) -> Array:
    """Returns the measured `T_base_gripper` (T, N, 4, 4) of an episode."""
    arms = episode.attributes.contract.arms
    return np.stack([np.asarray(episode.arrays[f"T_base_gripper/{arm}"]) for arm in arms], axis=1)


def find_keyposes(motion: Motion, settings: KeyposeSettings | None = None) -> Keyposes:
    """Finds the keyposes of a recording.

    Raises:
        NoKeyposeError: There is none: no gripper acts at rest, and no arm comes to a stop.
    """
    settings = settings or KeyposeSettings()
    smooth = _smoothed(motion.pose[..., :3, 3], motion.steps(settings.smooth_s))
    events = _changes_in_place(_gripper_events(motion, smooth, settings), motion, settings)
    hurried = not events and _never_rests(motion, smooth, settings)
    if hurried:
        events = _changes_in_place(_strokes_in_flight(motion, smooth, settings), motion, settings)
    if settings.stops == "always" or (settings.stops == "auto" and not events):
        turns = _turns(motion, smooth, settings) if hurried else []
        events = sorted(
            (*turns, *_with_stops(events, motion, smooth, settings)), key=lambda one: one.start
        )
    elif settings.stops == "auto":
        stops = _final_stop(events, motion, smooth, settings)
        # One that ends in flight is where the arm is going at the end.
        last = len(motion.pose) - 1
        events += [replace(stop, start=last) for stop in stops] if hurried else stops
    if not events:
        raise NoKeyposeError(
            f"There is no keypose in {len(motion.pose)} steps: no opening changes by "
            f"{settings.stroke:g} while its arm stands still (within {settings.rest_m:g} m for "
            f"{settings.rest_s:g} s), and no arm stops or turns after {settings.travel_m:g} m. Set "
            "stroke, rest_m or stops=always (policy.events.* of a training), or train "
            "policy=diffusion, which needs no keyposes."
        )
    return _described(_merged(events, motion.steps(settings.together_s)), motion, settings)


@dataclass(frozen=True)
class _Event:
    """An event: the arms that act, and its first and last step.

    Where arms act together, `starts` are the first steps of each, in the order of `arms`. A stroke
    in flight has begun, and a corner is reached, `earlier` steps before.
    """

    arms: tuple[int, ...]
    start: int
    end: int
    closes: bool = False
    stop: bool = False
    starts: tuple[int, ...] = ()
    earlier: int = 0

    def start_of(self, arm: int) -> int:
        """Returns the step at which an arm is at its keypose."""
        starts = dict(zip(self.arms, self.starts, strict=False))
        return starts.get(arm, self.start)


def _smoothed(position: Floats, window: int) -> Floats:
    """Returns the moving average of positions (T, N, 3) over an odd number of steps."""
    half = window // 2
    padded = np.pad(position, ((half, half), (0, 0), (0, 0)), mode="edge")
    total = np.cumsum(np.concatenate((np.zeros_like(padded[:1]), padded)), axis=0)
    return np.asarray((total[2 * half + 1 :] - total[: -2 * half - 1]) / (2 * half + 1))


def _at_rest(position: Floats, steps: int, most_m: float) -> Flags:
    """Returns whether a gripper stays within a distance for some steps from each step on, (T,)."""
    count = len(position)
    ahead = np.minimum(np.arange(count)[:, None] + np.arange(1, steps + 1), count - 1)
    distance = np.linalg.norm(position[ahead] - position[:, None], axis=-1)
    return np.asarray(distance.max(axis=1) <= most_m)


def _gripper_events(motion: Motion, smooth: Floats, settings: KeyposeSettings) -> list[_Event]:
    """Returns the strokes of grippers whose arm stands still, in the order of time.

    A stroke that begins in flight, as the hand takes the shape for an object, begins where the arm
    has come to rest, if enough of it is left.
    """
    events = []
    for arm in range(motion.opening.shape[1]):
        opening = motion.opening[:, arm]
        rest = _at_rest(smooth[:, arm], motion.steps(settings.rest_s), settings.rest_m)
        turns = turning_points(opening, settings.stroke)
        for turn, next_turn in pairwise(turns):
            first, last = _stroke_at_rest(opening, rest, turn, next_turn, motion.steps(REST_S))
            part = opening[first : last + 1]
            near = settings.stroke / 5
            begun = first + int(np.flatnonzero(np.abs(part - part[0]) <= near)[-1])
            arrived = first + int(np.argmax(np.abs(part - part[-1]) <= near))
            still = np.flatnonzero(rest[begun : max(arrived, begun + 1)])
            if not len(still):
                continue
            start = begun + int(still[0])
            if abs(opening[start] - opening[last]) >= settings.stroke * (
                1 if start > begun else 0.8
            ):
                closes = bool(opening[last] < opening[start])
                events.append(_Event((arm,), start, max(arrived, start), closes))
    return sorted(events, key=lambda event: event.start)


def _never_rests(motion: Motion, smooth: Floats, settings: KeyposeSettings) -> bool:
    """Returns whether no arm stands still on its way: its gripper acts, and it turns, in flight."""
    last = len(motion.pose) - motion.steps(settings.rest_s)
    return all(stop.start >= last for stop in _with_stops([], motion, smooth, settings))


def _strokes_in_flight(motion: Motion, smooth: Floats, settings: KeyposeSettings) -> list[_Event]:
    """Returns the strokes of grippers whose arm never stands still, in the order of time.

    A hand in a hurry begins to close before it is there, and leaves when it has closed. So the
    event is where it is slowest, from the beginning of the stroke on.
    """
    events = []
    for arm in range(motion.opening.shape[1]):
        opening = motion.opening[:, arm]
        way = np.diff(smooth[:, arm], axis=0, append=smooth[-1:, arm])
        speed = np.linalg.norm(way, axis=-1)
        begins = []
        for turn, next_turn in pairwise(turning_points(opening, settings.stroke)):
            part = opening[turn : next_turn + 1]
            near = settings.stroke / 5
            begun = turn + int(np.flatnonzero(np.abs(part - part[0]) <= near)[-1])
            begins.append((begun, turn + int(np.argmax(np.abs(part - part[-1]) <= near))))
        ends = [*(begun for begun, _ in begins[1:]), len(opening) - 1]
        for (begun, arrived), end in zip(begins, ends, strict=False):
            until = min(end, begun + motion.steps(FLIGHT_S))
            start = begun + int(speed[begun : max(until, begun + 1)].argmin())
            closes = bool(opening[arrived] < opening[begun])
            events.append(_Event((arm,), start, max(arrived, start), closes, earlier=start - begun))
    return sorted(events, key=lambda event: event.start)


def _turns(motion: Motion, smooth: Floats, settings: KeyposeSettings) -> list[_Event]:
    """Returns where arms that never stand still turn: the corners of their ways.

    A way is replaced by as few straight lines as stay within `travel_m` of it (Ramer, 1972, Douglas
    and Peucker, 1973); a corner is where two of them turn by more than `TURN_RAD`. It is reached
    within `REACHED_M`: an arm that has been sent there has to know what comes next, though no
    recorded one has waited there.
    """
    events = []
    for arm in range(motion.opening.shape[1]):
        way = smooth[:, arm]
        ends = _corners(way, 0, len(way) - 1, settings.travel_m)
        for before, step, after in zip(ends, ends[1:], ends[2:], strict=False):
            came = way[step] - way[before]
            goes = way[after] - way[step]
            cosine = came @ goes / max(np.linalg.norm(came) * np.linalg.norm(goes), 1e-12)
            if np.arccos(np.clip(cosine, -1.0, 1.0)) > TURN_RAD:
                far = np.linalg.norm(way[:step] - way[step], axis=-1) > REACHED_M
                arrived = int(np.flatnonzero(far)[-1]) + 1 if far.any() else 0
                events.append(_Event((arm,), step, step, stop=True, earlier=step - arrived))
    return events


def _corners(way: Floats, first: int, last: int, within_m: float) -> list[int]:
    """Returns the steps at the ends of straight lines that stay within a distance of a way."""
    if last - first < 2:
        return [first, last]
    line = way[last] - way[first]
    offset = way[first + 1 : last] - way[first]
    share = np.clip(offset @ line / max(float(line @ line), 1e-12), 0.0, 1.0)
    away = np.linalg.norm(offset - share[:, None] * line, axis=-1)
    if away.max() <= within_m:
        return [first, last]
    middle = first + 1 + int(away.argmax())
    before = _corners(way, first, middle, within_m)
    return [*before[:-1], *_corners(way, middle, last, within_m)]


def _stroke_at_rest(
    opening: Floats, rest: Flags, first: int, last: int, window: int
) -> tuple[int, int]:
    """Returns the part of a stroke, between two turning points, in which the gripper acts.

    A hand that takes the shape for an object in flight closes in two parts with a pause between
    them. Of the parts, it is the one with most of the motion while its arm stands still.
    """
    steps = np.arange(first, last)
    later = np.minimum(steps + window, last)
    earlier = np.maximum(steps + 1 - window, first)
    moves = np.abs(opening[later] - opening[steps]) >= REST
    moves &= np.abs(opening[steps + 1] - opening[earlier]) >= REST
    edges = np.flatnonzero(np.diff(np.concatenate(([0], moves.astype(np.int8), [0]))))
    change = np.abs(np.diff(opening[first : last + 1])) * rest[first:last]
    parts = [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
    if not parts:
        return first, last
    begin, end = max(parts, key=lambda part: float(change[part[0] : part[1]].sum()))
    return first + begin, first + end


def _changes_in_place(
    events: list[_Event], motion: Motion, settings: KeyposeSettings
) -> list[_Event]:
    """Keeps of the events of a gripper in one place only what they change together.

    A second grasp is one closing, and a hand that closes and opens again has done nothing. The last
    event in the direction of the whole change stands for all.
    """
    groups: list[list[_Event]] = []
    for event in events:
        group = next((one for one in reversed(groups) if one[-1].arms == event.arms), None)
        if group is not None:
            way = motion.pose[group[0].start : event.start + 1, event.arms[0], :3, 3]
            if np.linalg.norm(way - way[0], axis=-1).max() < settings.travel_m:
                group.append(event)
                continue
        groups.append([event])
    kept = []
    for group in groups:
        changes = [_change(event, motion) for event in group]
        opening = motion.opening[:, group[0].arms[0]]
        whole = opening[group[-1].end] - opening[group[0].start - group[0].earlier]
        if len(group) == 1:
            kept += group
        elif abs(whole) >= max(settings.stroke, np.abs(changes).max() / 2):
            kept.append([event for event in group if event.closes == (whole < 0)][-1])
    kept.sort(key=lambda event: event.start)
    return _without_shaping(_without_repeats(kept, motion))


def _change(event: _Event, motion: Motion) -> float:
    """Returns the change of the opening in an event of one gripper."""
    opening = motion.opening[:, event.arms[0]]
    return float(opening[event.end] - opening[event.start - event.earlier])


def _without_shaping(events: list[_Event]) -> list[_Event]:
    """Removes the opening of an empty hand, which has not closed before."""
    first = {event.arms: event for event in reversed(events)}
    closing = {event.arms for event in events if event.closes}
    return [
        event
        for event in events
        if event.closes or event is not first[event.arms] or event.arms not in closing
    ]


def _without_repeats(events: list[_Event], motion: Motion) -> list[_Event]:
    """Keeps one event where a gripper would close twice, or open twice.

    The last closing is the grasp, since the hand takes a shape for the object before. Of openings
    the largest is the release, since the empty hand may narrow and widen after it.
    """
    kept: list[_Event] = []
    for event in events:
        before = next((other for other in reversed(kept) if other.arms == event.arms), None)
        if before is None or before.closes != event.closes:
            kept.append(event)
        elif event.closes or _change(event, motion) > _change(before, motion):
            kept.remove(before)
            kept.append(event)
    return kept


def _with_stops(
    events: list[_Event], motion: Motion, smooth: Floats, settings: KeyposeSettings
) -> list[_Event]:
    """Adds the stops of each arm after some travel, the end of the recording included."""
    found = list(events)
    count = len(motion.pose)
    for arm in range(motion.opening.shape[1]):
        rest = _at_rest(smooth[:, arm], motion.steps(settings.rest_s), settings.rest_m)
        own = [event.start for event in events if arm in event.arms]
        place = smooth[0, arm]
        for step in range(count):
            if step in own:
                place = smooth[step, arm]
            far = np.linalg.norm(smooth[step, arm] - place) >= settings.travel_m
            if far and (rest[step] or step == count - 1):
                found.append(_Event((arm,), step, step, stop=True))
                place = smooth[step, arm]
    return sorted(found, key=lambda event: event.start)


def _final_stop(
    events: list[_Event], motion: Motion, smooth: Floats, settings: KeyposeSettings
) -> list[_Event]:
    """Returns the stop at the end of arms that still hold something and have carried it.

    Only stops after all events: an arm that holds something for the other one is where it stands at
    the events of that one, and a stop would last over them.
    """
    last = len(motion.pose) - 1
    latest = max((event.start for event in events), default=0)
    found = []
    for arm in range(motion.opening.shape[1]):
        own = [event for event in events if arm in event.arms]
        if not own or not own[-1].closes:
            continue
        away = np.linalg.norm(smooth[last, arm] - smooth[own[-1].start, arm])
        if away >= settings.travel_m:
            near = np.linalg.norm(smooth[:, arm] - smooth[last, arm], axis=-1) <= settings.rest_m
            moving = np.flatnonzero(~near[own[-1].end :])
            start = own[-1].end + (int(moving[-1]) + 1 if len(moving) else 0)
            if start > latest:
                found.append(_Event((arm,), min(start, last), last, stop=True))
    return found


def _merged(events: list[_Event], within: int) -> list[_Event]:
    """Joins events of different arms that begin within some steps of each other."""
    joined: list[_Event] = []
    for event in sorted(events, key=lambda event: event.start):
        last = joined[-1] if joined else None
        if last and event.start - last.start < within and not set(event.arms) & set(last.arms):
            arms = tuple(sorted((*last.arms, *event.arms)))
            starts = tuple(last.start_of(a) if a in last.arms else event.start for a in arms)
            end = max(last.end, event.end)
            joined[-1] = replace(last, arms=arms, end=end, starts=starts)
        else:
            joined.append(event)
    return joined


def _described(events: list[_Event], motion: Motion, settings: KeyposeSettings) -> Keyposes:
    """Returns the poses on the way to and from each event."""
    count, arms = motion.opening.shape
    rows: dict[str, list[Floats]] = {
        name: [] for name in ("pose", "approach", "corner", "departure", "before", "after")
    }
    for number, event in enumerate(events):
        earlier = events[number - 1].end if number else 0
        later = events[number + 1].start if number + 1 < len(events) else count - 1
        ways = [
            _way(
                motion.pose[:, arm],
                (min(earlier, event.start), event.start_of(arm), event.end, later),
                settings,
            )
            for arm in range(arms)
        ]
        for name, index in zip(("approach", "corner", "departure"), range(3), strict=True):
            rows[name].append(np.stack([way[index] for way in ways]))
        each = np.arange(arms)
        starts = [event.start_of(arm) for arm in range(arms)]
        rows["pose"].append(motion.pose[starts, each])
        rows["before"].append(motion.opening[np.array(starts) - event.earlier, each])
        rows["after"].append(motion.opening[min(event.end, count - 1)])
    acting = np.array([[arm in event.arms for arm in range(arms)] for event in events])
    start, end = (np.array([getattr(event, name) for event in events]) for name in ("start", "end"))
    reached = np.array([event.earlier if event.stop else 0 for event in events])
    start = start - reached
    end = end - reached
    arrays = {name: np.array(values) for name, values in rows.items()}
    return Keyposes(start=start, end=end, acting=acting, **arrays)


def _way(
    pose: Floats, steps: tuple[int, int, int, int], settings: KeyposeSettings
) -> tuple[Floats, Floats, Floats]:
    """Returns approach, corner and departure (4, 4) of one arm, with poses (T, 4, 4).

    `steps` are the end of the last event, start and end of this one, and the start of the next.
    """
    earlier, start, end, later = steps
    approach = straight_start(
        pose, earlier, start, most_m=settings.straight_m, least_m=settings.least_m
    )
    near = np.linalg.norm(pose[:, :3, 3] - pose[approach, :3, 3], axis=-1) < 0.003
    paused = approach
    while paused > earlier and near[paused - 1]:
        paused -= 1
    corner = straight_start(
        pose, earlier, paused, most_m=settings.straight_m + 0.04, least_m=settings.least_m
    )
    turned = angle_between(pose[corner, :3, :3], pose[start, :3, :3])
    far = np.linalg.norm(pose[corner, :3, 3] - pose[approach, :3, 3]) > settings.least_m
    straight = angle_between(pose[corner, :3, :3], pose[paused, :3, :3]) < 0.06
    is_corner = corner < paused and far and turned < 0.1 and straight
    departure = end + _departure(
        pose[end : max(later, end) + 1, :3, 3], pose[start, :3, 3], settings
    )
    return pose[approach], pose[corner if is_corner else approach], pose[departure]


def _departure(positions: Floats, origin: Floats, settings: KeyposeSettings) -> int:
    """Returns the step of positions (T, 3) after an event at which its straight departure ends.

    The way is straight while it stays within `STRAIGHT` of its length from the line to the event.
    """
    away = np.linalg.norm(positions - origin, axis=-1)
    beyond = np.flatnonzero(away > settings.depart_m)
    if not len(beyond):
        return int(away.argmax())
    last = int(beyond[0])
    for step in range(last + 1, len(positions)):
        if away[step] > settings.straight_m or away[step] < away[last]:
            break
        line = (positions[step] - origin) / away[step]
        way = positions[: step + 1] - origin
        beside = np.linalg.norm(way - (way @ line)[:, None] * line, axis=-1)
        if beside.max() > STRAIGHT * away[step]:
            break
        last = step
    return last


def straight_start(pose: Floats, earliest: int, end: int, *, most_m: float, least_m: float) -> int:
    """Returns the first step of the straight part of a motion that ends at a step.

    On the straight part the gripper stays within 3 mm of the line to its end and within 0.06 rad of
    its final rotation. A part shorter than `least_m` is none: then it is the last step that is
    twice as far from the end, or the farthest one.

    Args:
        pose: (T, 4, 4) poses of the gripper.
        earliest: First step that may belong to it.
        end: Its last step.
        most_m: Its largest length, m.
        least_m: Its least length, m.
    """
    position = pose[:, :3, 3]
    far = np.linalg.norm(position - position[end], axis=-1)
    best = end
    for step in range(end - 1, earliest - 1, -1):
        if far[step] < 0.004:
            best = step
            continue
        if far[step] > most_m or angle_between(pose[step, :3, :3], pose[end, :3, :3]) > 0.06:
            break
        line = (position[end] - position[step]) / far[step]
        way = position[step : end + 1] - position[step]
        beside = way - (way @ line)[:, None] * line
        if np.linalg.norm(beside, axis=-1).max() > 0.003 or far[best] > far[step] + 0.002:
            break
        best = step
    if far[best] < least_m:
        away = np.flatnonzero(far[earliest:end] > 2 * least_m)
        return earliest + (int(away[-1]) if len(away) else int(far[earliest : end + 1].argmax()))
    # The last step that is as far: not the pause before it.
    away = np.flatnonzero(far[earliest:end] >= far[best] - 0.0015)
    return earliest + int(away[-1]) if len(away) else best


def sequence_of(keyposes: Keyposes, arms: tuple[str, ...]) -> str:
    """Returns the events in words, such as `left closes, right closes, left opens`."""
    return ", ".join(events_in_words(keyposes, arms))


def events_in_words(keyposes: Keyposes, arms: tuple[str, ...]) -> Iterator[str]:
    """Yields each event in words, such as `left closes` or `left and right stops`."""
    for row in range(len(keyposes)):
        parts: Mapping[str, list[str]] = {"closes": [], "opens": [], "stops": []}
        for arm, name in enumerate(arms):
            if keyposes.acting[row, arm]:
                change = keyposes.after[row, arm] - keyposes.before[row, arm]
                verb = (
                    "stops" if abs(change) < STROKE / 2 else ("opens" if change > 0 else "closes")
                )
                parts[verb].append(name)
        yield " and ".join(f"{' and '.join(who)} {verb}" for verb, who in parts.items() if who)


def episode_keyposes(episode: StoredEpisode, settings: KeyposeSettings) -> Keyposes:
    """Finds the keyposes of a stored episode.

    Raises:
        NoKeyposeError: It has none; the message names the episode.
        ValueError: Its actions have no meaning for keyposes, see `arm_commands`.
    """
    contract = episode.attributes.contract
    motion = commanded_motion(
        np.asarray(episode.arrays["action"]),
        arm_commands(contract),
        contract.control_hz,
        measured_poses(episode),
    )
    try:
        return find_keyposes(motion, settings)
    except NoKeyposeError as error:
        raise NoKeyposeError(f"Episode {episode.name}: {error}") from None


Span = tuple[int, NDArray[np.int64], NDArray[np.int64]]


def carried_spans(keyposes: Keyposes, steps: NDArray[np.int64], poses: Array) -> list[Span]:
    """Returns when each arm carries something to a keypose.

    Args:
        keyposes: The keyposes of an episode.
        steps: (F,) steps of frames, rising.
        poses: (F, N, 4, 4) measured `T_base_gripper` of the frames.

    Returns:
        The arm, the frames in which it is more than 4 cm from where it closed, and the frames
        between the previous keypose and this one.
    """
    number = keyposes.next_of(steps)
    spans: list[Span] = []
    for row in range(1, len(keyposes)):
        for arm in range(keyposes.acting.shape[1]):
            earlier = np.flatnonzero(keyposes.acting[:row, arm])
            if not len(earlier):
                continue
            closing = int(earlier[-1])
            if keyposes.after[closing, arm] >= keyposes.before[closing, arm]:
                continue
            carrying = (number > closing) & (number <= row) & (steps > keyposes.end[closing])
            marked = np.flatnonzero((number == row) & (steps > keyposes.end[row - 1]))
            frames = np.flatnonzero(carrying)
            grasp = keyposes.pose[closing, arm, :3, 3]
            away = np.linalg.norm(poses[frames, arm, :3, 3] - grasp, axis=-1) > 0.04
            if len(marked) and away.sum() >= 3:
                spans.append((arm, frames[away], marked))
    return spans
