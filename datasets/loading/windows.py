"""Training windows: an observation at the time of an image, and the chunk of actions after it.

Images and actions are rows of memory-mapped arrays, or of files where there are too many to keep
them all mapped. The other arrays of episodes are small and are read as a whole.
"""

import mmap
import os
import resource
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.contract.contract import (
    NUMBER_KEY,
    Array,
    Camera,
    Contract,
    instruction_number,
)
from stringline.datasets.loading.corrections import Labels, until_takeover_s
from stringline.datasets.loading.keyposes import (
    Keyposes,
    carried_spans,
    episode_keyposes,
)
from stringline.datasets.loading.window_settings import WindowSettings, with_commands
from stringline.datasets.loading.workspace_clouds import PREFIX as CLOUD
from stringline.datasets.loading.workspace_clouds import UNIT_M, CloudCache, CloudMaker
from stringline.datasets.store.episode import StoredEpisode, task_names
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.zarr_layout import as_bytes, chunk_name

FILES_FOR_OTHERS = 256


class MappedRows:
    """The rows of an array, read in random order: of a mapped file, only the pages of a row.

    By default the kernel reads ahead around each page that is not in memory, up to megabytes on
    some machines. With a store larger than the memory, each image would be read many times over.
    """

    def __init__(self, array: Array) -> None:
        """Takes an array of `StoredEpisode.arrays`; the advice holds for all uses of its map."""
        self._array = array
        self._file = _mapped_file(array)
        if self._file is not None:
            self._file.madvise(mmap.MADV_RANDOM)

    def copy(self, row: int, target: Array) -> None:
        """Copies a row into an array of its shape and type."""
        view = self._array[row]
        if self._file is not None:
            start = row * view.nbytes
            page = start - start % mmap.PAGESIZE
            # Without this, each page of the row would be read by itself.
            self._file.madvise(mmap.MADV_WILLNEED, page, start + view.nbytes - page)
        target[...] = view


def _mapped_file(array: Array) -> mmap.mmap | None:
    """Returns the map that an array is a view of, if it has one that accepts advice."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else None
    return owner if hasattr(mmap, "MADV_RANDOM") and isinstance(owner, mmap.mmap) else None


class MmapCache:
    """Maps the first arrays that are read, up to a capacity, and keeps them; it is thread-safe.

    Every map holds one open file. If the soft limit of the process on open files is below the
    capacity, the limit is raised as far as possible, and all caches of the process share what it
    allows. Rows of all other arrays are read from their files, which are closed at once: in the
    random order of a training, to map an array for one row takes twice the time.
    """

    def __init__(self, episodes: Sequence[StoredEpisode], capacity: int = 4096) -> None:
        """Creates an empty cache of at most `capacity` maps; `copy_row` indexes the episodes."""
        self._episodes = episodes
        self._folders = [os.fspath(episode.path) for episode in episodes]
        self._allowed = max(1, _allowed_files(capacity))
        self.capacity = max(1, min(capacity, self._allowed))
        self._maps: dict[tuple[int, str], MappedRows] = {}
        self._full = False
        with _keeping:
            _caches.add(self)

    def __len__(self) -> int:
        return len(self._maps)

    def copy_row(self, episode: int, key: str, row: int, target: Array) -> None:
        """Copies a row of an array of an episode, of the type of `target`, into that."""
        if (mapped := self._maps.get((episode, key))) is None:
            if self._full and self._read_row(episode, key, row, target):
                return
            mapped = MappedRows(self._episodes[episode].arrays[key])
            self._keep((episode, key), mapped)
        mapped.copy(row, target)

    def _keep(self, place: tuple[int, str], mapped: MappedRows) -> None:
        with _keeping:
            kept = sum(map(len, _caches))
            self._full = len(self._maps) >= self.capacity or kept >= self._allowed
            if not self._full:
                self._maps[place] = mapped

    def _read_row(self, episode: int, key: str, row: int, target: Array) -> bool:
        """Reads a row from its file, if the file is in its place and has the row."""
        if sys.byteorder != "little":  # The files are.
            return False
        path = f"{self._folders[episode]}/{chunk_name(key, target.ndim + 1)}"
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:  # An edit has removed the episode, or it is damaged.
            return False
        try:
            return os.preadv(descriptor, [as_bytes(target)], row * target.nbytes) == target.nbytes
        finally:
            os.close(descriptor)


_caches: weakref.WeakSet[MmapCache] = weakref.WeakSet()
_keeping = threading.Lock()


def _allowed_files(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted + FILES_FOR_OTHERS:
        soft = (
            wanted + FILES_FOR_OTHERS if hard == unlimited else min(hard, wanted + FILES_FOR_OTHERS)
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else soft - FILES_FOR_OTHERS


def window_starts(episode: StoredEpisode, cameras: Sequence[Camera], every_step: bool) -> Array:
    """Returns the first steps (S,) of windows: steps with a new image and step 0, or all steps."""
    new = np.full(episode.steps, every_step or not cameras)
    new[:1] = True
    for camera in cameras:
        new[1:] |= np.diff(episode.arrays[f"frame/{camera.name}"]) != 0
    return np.flatnonzero(new)


def small_arrays(
    episodes: Sequence[StoredEpisode], steps: Sequence[Array], contract: Contract
) -> dict[str, Array]:
    """Returns state and geometry of cameras at steps (S,) of each episode, concatenated.

    The result has arrays (sum of S, ...) for the keys that every episode has, with `frame/<camera>`
    of the cameras of the contract.
    """
    parts = [
        _at(episode, chosen, contract) for episode, chosen in zip(episodes, steps, strict=True)
    ]
    shared = [key for key in parts[0] if all(key in part for part in parts)]
    return {key: np.concatenate([part[key] for part in parts]) for key in shared}


def _at(episode: StoredEpisode, steps: Array, contract: Contract) -> dict[str, Array]:
    arrays = episode.arrays
    state = (
        "time",
        "joints/position",
        "joints/velocity",
        "joints/effort",
        *(f"T_base_gripper/{arm}" for arm in contract.arms),
    )
    small = {key: arrays[key][steps] for key in state if key in arrays}
    for camera in contract.cameras:
        frames = small[f"frame/{camera.name}"] = arrays[f"frame/{camera.name}"][steps]
        small[f"time/{camera.name}"] = arrays[f"time/{camera.name}"][frames]
        for key in (f"intrinsics/{camera.name}", f"T_base_camera/{camera.name}"):
            if key in arrays:
                stored = arrays[key]
                fixed = stored.ndim == 2  # One matrix for the whole episode.
                repeated = np.broadcast_to(stored, (len(steps), *stored.shape)) if fixed else None
                small[key] = stored[frames] if repeated is None else repeated
    return small


Batch = dict[str, Array]
DEFAULTS = WindowSettings()


class Windows:
    """The training windows of a store.

    A window begins at a step with a new image of one of the cameras, so that images and state
    belong to the same time; between such steps, policies execute chunks without new observations.
    Images are copied out of memory maps or files; all other arrays (about 1 kB per window, and the
    actions) are held in memory. Reading is thread-safe. Edits of the store do not change existing
    windows.

    Attributes:
        settings: What the windows contain.
        contract: Common contract of the episodes, restricted to the chosen cameras.
        episode: (N,) index of the episode of each window in `names`.
        step: (N,) first step of each window in its episode.
        names: Names of the episodes.
        tasks: Their tasks, see `task_names`.
        segmented: Names of the cameras whose segments the windows contain.
        group: (N,) number of the keypose that follows each window, different for each episode;
            if None, windows have no keyposes.
        until_takeover_s: (N,) see `until_takeover_s`; 0 for windows with labels.
    """

    def __init__(
        self,
        store: EpisodeStore,
        settings: WindowSettings = DEFAULTS,
        *,
        names: Sequence[str] | None = None,
        open_files: int = 4096,
        **changes: Any,
    ) -> None:
        """Reads all arrays except images.

        Args:
            store: The data.
            settings: What the windows contain.
            names: Names of the episodes. If None, all.
            open_files: Largest number of image arrays that stay mapped; the others are read.
            changes: Fields of `WindowSettings` that replace those of `settings`, such as `chunk=48`
                or `past=(20, 10)`.

        Raises:
            ValueError: There is no episode, a camera does not exist, episodes have different
                contracts, a number is out of range, no episode is longer than the past, or an
                episode has no keyposes although they are needed.
            TypeError: `WindowSettings` has no such field.
        """
        self.settings = settings = replace(settings, **changes)
        self._pin = store.pin()
        self.names = training_names(store, names)
        episodes = [store.episode(name, removed=True) for name in self.names]
        self.contract = _common_contract(episodes, settings.cameras)
        _check_past(settings.past, episodes, store)
        self.segmented = _segmented(episodes, self.contract) if settings.segments else ()
        self._maps = MmapCache(episodes, open_files)
        self.tasks = task_names([episode.attributes for episode in episodes])
        events = settings.events
        keyposes_of = [episode_keyposes(each, events) for each in episodes] if events else []
        starts = _starts(episodes, keyposes_of, self.contract, settings)
        self.step = np.concatenate(starts).astype(np.int64)
        self.episode = np.repeat(np.arange(len(episodes)), [len(steps) for steps in starts])
        self._small = small_arrays(episodes, starts, self.contract)
        self._small[NUMBER_KEY] = _instruction_numbers(episodes)[self.episode]
        self._frames = {
            camera.name: self._small.pop(f"frame/{camera.name}") for camera in self.contract.cameras
        }
        self._index_actions(episodes)
        self._index_past(episodes)
        self._index_events(keyposes_of, starts)
        self._index_takeovers(episodes, starts)
        self._index_clouds(episodes, starts, keyposes_of)

    def _index_clouds(
        self,
        episodes: Sequence[StoredEpisode],
        starts: Sequence[Array],
        keyposes: Sequence[Keyposes],
    ) -> None:
        """Makes the clouds of the windows and of the past that they see, if they contain clouds."""
        self._clouds: list[Array] | None = None
        if self.settings.clouds is None:
            return
        back = np.array([0, *(self.settings.past if self.settings.past_images else ())])
        # The steps of the clouds of each episode.
        self._clouded = [np.unique(np.maximum(each[:, None] - back, 0)) for each in starts]
        self._clouds = _clouds(self.settings.clouds, episodes, self._clouded, keyposes)

    def _index_events(self, keyposes: Sequence[Keyposes], starts: Sequence[Array]) -> None:
        """Reads the keypose after each window."""
        self.group: Array | None = None
        if not keyposes:
            return
        found = [each.targets(steps) for each, steps in zip(keyposes, starts, strict=True)]
        self._small |= {key: np.concatenate([part[key] for part in found]) for key in found[0]}
        most = max(map(len, keyposes)) + 1
        self.group = self.episode * most + self._small["keypose/number"] + 1

    def _index_past(self, episodes: Sequence[StoredEpisode]) -> None:
        """Reads the small arrays of every step, if windows have a past."""
        with_images = self.settings.past_images
        self._past_contract = self.contract if with_images else self.contract.with_cameras()
        if not self.settings.past:
            return
        every = [np.arange(episode.steps) for episode in episodes]
        self._every = small_arrays(episodes, every, self._past_contract)

    def _index_actions(self, episodes: Sequence[StoredEpisode]) -> None:
        """Concatenates the actions.

        `_first` is the row of each window in them, `_ahead` that of the first target, `_last` that
        of the last one.
        """
        actions = [np.array(episode.arrays["action"]) for episode in episodes]
        if self.settings.gripper_commands:
            actions = [with_commands(each, self.contract) for each in actions]
        self._actions: Array = np.concatenate(actions)
        lengths = np.array([episode.steps for episode in episodes])
        ends = np.cumsum(lengths)
        self._last: Array = (ends - 1)[self.episode]
        self._relative = np.array([each.mode == "relative" for each in self.contract.action])
        self._first = (ends - lengths)[self.episode] + self.step
        self._ahead: Array = self._first.copy()

    def _index_takeovers(self, episodes: Sequence[StoredEpisode], starts: Sequence[Array]) -> None:
        """Reads who leads at each window, and the labels of experts."""
        pairs = list(zip(episodes, starts, strict=True))
        self.until_takeover_s = np.concatenate(
            [until_takeover_s(episode.attributes, steps) for episode, steps in pairs]
        )
        first = np.cumsum([0, *map(len, starts)])
        settings = self.settings
        most = 0 if self.group is None else int(self.group.max()) + 1
        for number, (episode, steps) in enumerate(pairs if settings.labels else ()):
            labels = Labels.of(
                episode,
                steps,
                self.contract,
                settings.events,
                gripper_commands=settings.gripper_commands,
            )
            if labels is None:
                continue
            chosen = first[number] + labels.window
            self.until_takeover_s[chosen] = 0.0
            count, length = labels.motion.shape[:2]
            self._ahead[chosen] = len(self._actions) + length * np.arange(count)
            self._last[chosen] = self._ahead[chosen] + length - 1
            self._actions = np.concatenate([self._actions, *labels.motion])
            for key, targets in labels.keyposes.items():
                self._small[key][chosen] = targets
            if self.group is not None:
                self.group[chosen] = most + number

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, index: int) -> Batch:
        """Returns a window with the keys of `batch`, without the leading axis."""
        return {key: array[0] for key, array in self.batch([index]).items()}

    def batch(self, indices: ArrayLike) -> Batch:
        """Reads windows into new contiguous arrays.

        Args:
            indices: (B,) numbers of windows.

        Returns:
            The observation keys of the contract with a leading axis B, the segments of the cameras
            `segmented`, `action` (B, chunk, A) float32, where after the end of the episode the last
            action is repeated, with 0 in relative dimensions, `action_mask` (B, chunk) bool, False
            more than `pad_last_action_steps` after the end, `step` and `episode` (B,), and
            `instruction_number` (B,) int64, see `contract.py`. With K past offsets also
            `past/<key>` (B, K, ...) for each of the observation keys, the largest offset first, and
            `past_mask` (B, K) bool, False before the beginning of the episode, where its first step
            is repeated. Without `past_images` the past contains only the keys of the state. With
            keyposes also `keypose/*`, see `Keyposes.targets`; with clouds `cloud/*` in place of
            images.

        Raises:
            IndexError: A window does not exist.
        """
        chosen = np.asarray(indices, np.int64)
        if chosen.ndim != 1 or (chosen.size and not 0 <= chosen.min() <= chosen.max() < len(self)):
            raise IndexError(f"There are windows 0 to {len(self) - 1}; got {chosen}.")
        batch = {key: array[chosen] for key, array in self._small.items()}
        if self._clouds is None:
            frames = {name: frames[chosen] for name, frames in self._frames.items()}
            batch |= self._seen(
                self.contract.cameras, self.episode[chosen], frames, segmented=self.segmented
            )
        else:
            batch |= self._cloud_arrays(self._clouds, self.episode[chosen], self.step[chosen])
        ahead = self._ahead[chosen, None] + np.arange(self.settings.chunk)
        last = self._last[chosen, None]
        batch["action"] = self._actions[np.minimum(ahead, last)]
        if self._relative.any():  # A repeated difference would move the target on.
            batch["action"][(ahead > last)[..., None] & self._relative] = 0
        batch["action_mask"] = ahead <= last + self.settings.pad_last_action_steps
        batch["step"] = self.step[chosen]
        batch["episode"] = self.episode[chosen]
        return batch | (self._history(chosen) if self.settings.past else {})

    def _cloud_arrays(self, clouds: Sequence[Array], episode: Array, step: Array) -> Batch:
        """Returns clouds at steps (N,) of episodes (N,): `cloud/points` (N, P, 3) m and others."""
        rows = [
            clouds[number][np.searchsorted(self._clouded[number], at)]
            for number, at in zip(episode.tolist(), step.tolist(), strict=True)
        ]
        records = np.stack(rows) if rows else np.zeros(0, clouds[0].dtype)
        batch: Batch = {
            f"{CLOUD}points": records["points"] * np.float32(UNIT_M),
            f"{CLOUD}colours": np.ascontiguousarray(records["colours"]),
            f"{CLOUD}held": np.ascontiguousarray(records["held"]),
            f"{CLOUD}count": records["count"].astype(np.int64),
            f"{CLOUD}support": np.ascontiguousarray(records["support"]),
        }
        return batch

    def _history(self, chosen: Array) -> Batch:
        """Returns the keys of the past."""
        back = np.asarray(self.settings.past)
        known = self.step[chosen, None] >= back
        steps = np.maximum(self.step[chosen, None] - back, 0)
        rows = (self._first - self.step)[chosen, None] + steps
        flat = {key: array[rows.ravel()] for key, array in self._every.items()}
        cameras = self._past_contract.cameras
        frames = {camera.name: flat.pop(f"frame/{camera.name}") for camera in cameras}
        episodes = np.repeat(self.episode[chosen], len(back))
        if self._clouds is None:
            flat |= self._seen(cameras, episodes, frames)
        elif self.settings.past_images:
            flat |= self._cloud_arrays(self._clouds, episodes, steps.ravel())
        shaped = {
            f"past/{key}": array.reshape(*rows.shape, *array.shape[1:])
            for key, array in flat.items()
        }
        return shaped | {"past_mask": known}

    def _seen(
        self,
        cameras: Sequence[Camera],
        episode: Array,
        frames: Batch,
        *,
        segmented: Sequence[str] = (),
    ) -> Batch:
        """Returns the images (B, H, W, ...) of frames (B,) of each camera in episodes (B,)."""
        seen: Batch = {}
        for camera in cameras:
            size = (len(episode), camera.height, camera.width)
            seen[f"rgb/{camera.name}"] = np.empty((*size, 3), np.uint8)
            if camera.depth is not None:
                seen[f"depth/{camera.name}"] = np.empty(size, np.uint16)
            if camera.name in segmented:
                seen[f"segmentation/{camera.name}"] = np.empty(size, np.uint8)
        for key, images in seen.items():
            chosen = frames[key.partition("/")[2]].tolist()
            for row, (number, frame) in enumerate(zip(episode.tolist(), chosen, strict=True)):
                self._maps.copy_row(number, key, frame, images[row])
        return seen


def _starts(
    episodes: Sequence[StoredEpisode],
    keyposes: Sequence[Keyposes],
    contract: Contract,
    settings: WindowSettings,
) -> list[Array]:
    """Returns the first steps of the windows of each episode, see `window_starts`."""
    cameras = contract.cameras
    starts = [window_starts(episode, cameras, settings.every_step) for episode in episodes]
    if keyposes:  # A policy makes no prediction while a gripper acts.
        both = zip(starts, keyposes, strict=True)
        starts = [steps[~each.during(steps)] for steps, each in both]
    if settings.clouds is not None:
        least = round(contract.control_hz / settings.clouds_hz)
        starts = [spaced(steps, least) for steps in starts]
    return starts


def _clouds(
    maker: CloudMaker,
    episodes: Sequence[StoredEpisode],
    starts: Sequence[Array],
    keyposes: Sequence[Keyposes],
) -> list[Array]:
    """Returns the clouds of the windows of each episode, with marks of what grippers hold."""
    spans = []
    for number, (episode, steps) in enumerate(zip(episodes, starts, strict=True)):
        arms = episode.attributes.contract.arms
        poses = [np.asarray(episode.arrays[f"T_base_gripper/{arm}"])[steps] for arm in arms]
        found = carried_spans(keyposes[number], steps, np.stack(poses, 1)) if keyposes else []
        spans.append(found)
    return CloudCache(maker).records(episodes, starts, spans)


def spaced(steps: Array, least: int) -> Array:
    """Returns steps (S,) that are at least some steps apart, the first one included."""
    kept: list[int] = []
    for step in steps.tolist():
        if not kept or step - kept[-1] >= least:
            kept.append(step)
    return np.array(kept, np.int64)


def _instruction_numbers(episodes: Sequence[StoredEpisode]) -> Array:
    """Returns the number of the instruction of each episode."""
    numbers = [instruction_number(episode.attributes.instruction) for episode in episodes]
    return np.array(numbers, np.int64)


def training_names(store: EpisodeStore, names: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the chosen names of episodes, by default all; there must be at least one."""
    chosen = tuple(store.names() if names is None else names)
    if not chosen:
        raise ValueError(
            f"There are no episodes to train from in {store.path}. Record some with "
            "stringline-collect."
        )
    return chosen


def _segmented(episodes: Sequence[StoredEpisode], contract: Contract) -> tuple[str, ...]:
    """Returns the names of the cameras for which every episode has segments."""
    names = [camera.name for camera in contract.cameras]
    return tuple(
        name for name in names if all(f"segmentation/{name}" in each.arrays for each in episodes)
    )


def _check_past(
    past: Sequence[int], episodes: Sequence[StoredEpisode], store: EpisodeStore
) -> None:
    longest = max(episode.steps for episode in episodes)
    if past and max(past) >= longest:
        raise ValueError(
            f"past is {tuple(past)}, but the longest episode of {store.path} has {longest} steps; "
            "allowed: smaller offsets."
        )


def _common_contract(episodes: Iterable[StoredEpisode], cameras: Sequence[str] | None) -> Contract:
    common: Contract | None = None
    for episode in episodes:
        offered = episode.attributes.contract
        names = [camera.name for camera in offered.cameras] if cameras is None else cameras
        contract = offered.with_cameras(*(offered.camera(name) for name in names))
        common = common or contract
        if why := common.differences(contract):
            raise ValueError(
                f"Episode {episode.name} does not fit the previous ones. {' '.join(why)}"
            )
    assert common is not None
    return common
