"""Mixtures of stores with sampling weights and common camera slots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.loading.window_settings import WindowSettings
from stringline.datasets.loading.windows import (
    DEFAULTS,
    Batch,
    Windows,
    training_names,
)
from stringline.datasets.store.store import EpisodeStore

# Placeholders of unknown geometry. The pose has no rotation, unlike any real one, so that
# `View.calibrated` finds it after crops and resizing, too.
_UNKNOWN = {
    "intrinsics": np.eye(3, dtype=np.float32),
    "T_base_camera": np.diag([0, 0, 0, 1]).astype(np.float32),
}


@dataclass(frozen=True)
class Source:
    """A store of a mixture.

    Attributes:
        weight: Sampling weight relative to the other stores; above 0.
        cameras: The camera of this store by slot; if empty, each camera fills the slot with its
            own name.
    """

    path: Path
    weight: float = 1.0
    cameras: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the weight, and that no camera fills two slots."""
        if not (self.weight > 0 and np.isfinite(self.weight)):
            raise ValueError(
                f"The weight of {self.path} is {self.weight}; allowed: positive and finite."
            )
        if len(set(self.cameras.values())) < len(self.cameras):
            raise ValueError(f"A camera of {self.path} fills two slots: {dict(self.cameras)}.")

    def slots(self, contract: Contract) -> dict[str, str]:
        """Returns the camera of each slot; raises ValueError for an unknown camera."""
        names = [camera.name for camera in contract.cameras]
        for name in self.cameras.values():
            if name not in names:
                raise ValueError(f"{self.path}: {unknown_name('camera', name, names)}")
        return dict(self.cameras) or {name: name for name in names}


def mixed_contract(sources: Sequence[Source], contracts: Sequence[Contract]) -> Contract:
    """Returns the contract of a mixture, with one camera per slot in the order of the stores.

    A slot has depth and geometry if the camera of any store has. The stores must agree in
    embodiment, joints, actions and rate, and in image size and depth unit of each slot.
    """
    slots: dict[str, tuple[Camera, Source]] = {}
    first = contracts[0]
    for source, contract in zip(sources, contracts, strict=True):
        if why := first.with_cameras(*contract.cameras).incompatibilities(contract):
            raise ValueError(
                f"{sources[0].path} and {source.path} cannot be mixed. {' '.join(why)}"
            )
        for slot, name in source.slots(contract).items():
            camera = replace(contract.camera(name), name=slot)
            known, owner = slots.get(slot, (camera, source))
            slots[slot] = (_common(known, camera, f"{owner.path} and {source.path}"), owner)
    return first.with_cameras(*(camera for camera, _ in slots.values()))


class MixedWindows:
    """Windows of several stores, with the interface of `Windows`.

    An example has the keys of all slots and `present/<slot>` bool for each slot. In a slot that its
    store does not fill, image and depth are zero, intrinsics and `T_base_camera` are identities,
    and the time of the image is that of the window. State keys that a store lacks are omitted.

    Attributes:
        settings: What the windows contain.
        contract: See `mixed_contract`, restricted to the chosen slots.
        names: Names of the episodes of all stores, concatenated.
        tasks: Their tasks, see `task_names`.
        segmented: Names of the slots whose segments the windows contain.
        source: (N,) index of the store of each window.
        until_takeover_s: (N,) see `Windows`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        stores: Sequence[EpisodeStore],
        settings: WindowSettings = DEFAULTS,
        *,
        names: Sequence[Sequence[str]] | None = None,
        **changes: Any,
    ) -> None:
        """Reads all arrays except images.

        Args:
            sources: Settings of each store, at least one.
            stores: The opened stores.
            settings: What the windows contain. Segments are those of each slot that all stores have
                filled with a camera with segments; clouds need the cameras of the slots in each
                store.
            names: Names of the episodes of each store. If None, all.
            changes: Fields of `WindowSettings` that replace those of `settings`.

        Raises:
            ValueError: There is no store, or see `Windows`.
            TypeError: `WindowSettings` has no such field.
        """
        if not sources:
            raise ValueError("A mixture needs at least one store.")
        settings = replace(settings, **changes)
        chosen = [None] * len(stores) if names is None else names
        contracts = [_contract(*each) for each in zip(stores, chosen, strict=True)]
        mixed = mixed_contract(sources, contracts)
        every = [camera.name for camera in mixed.cameras]
        slots = every if settings.cameras is None else list(settings.cameras)
        self.settings = replace(settings, cameras=slots)
        self.contract = mixed.with_cameras(*(mixed.camera(slot) for slot in slots))
        # The slot of each camera, by store.
        self._cameras = [_filled(*each, slots) for each in zip(sources, contracts, strict=True)]
        self._parts = [
            Windows(store, replace(settings, cameras=list(filled)), names=episodes)
            for store, filled, episodes in zip(stores, self._cameras, chosen, strict=True)
        ]
        self._weights = np.array([source.weight for source in sources])
        self._seen_at: list[tuple[str, tuple[int, ...]]] = []
        if settings.clouds is None:
            self._seen_at.append(("", ()))
            if settings.past and settings.past_images:
                self._seen_at.append(("past/", (len(settings.past),)))
        self._index_windows()

    def _index_windows(self) -> None:
        """Concatenates the windows of the stores, and finds their common keys."""
        self.names = tuple(name for part in self._parts for name in part.names)
        self.tasks = tuple(task for part in self._parts for task in part.tasks)
        self._first = np.cumsum([0, *(len(part) for part in self._parts)])
        earlier = np.cumsum([0, *(len(part.names) for part in self._parts)])
        self.source = np.repeat(np.arange(len(self._parts)), np.diff(self._first))
        self.step = np.concatenate([part.step for part in self._parts])
        self.episode = np.concatenate(
            [part.episode + before for part, before in zip(self._parts, earlier, strict=False)]
        )
        self.until_takeover_s = np.concatenate([part.until_takeover_s for part in self._parts])
        self.group = self._groups()
        samples = [
            self._read(number, self._first[number : number + 1])
            for number in range(len(self._parts))
        ]
        self._keys = [key for key in samples[0] if all(key in sample for sample in samples)]
        slots = [camera.name for camera in self.contract.cameras]
        self.segmented = tuple(slot for slot in slots if f"segmentation/{slot}" in self._keys)

    def _groups(self) -> NDArray[np.int64] | None:
        """Returns the number of the keypose after each window, different for each store."""
        groups = [part.group for part in self._parts]
        if any(group is None for group in groups):
            return None
        found: list[NDArray[np.int64]] = []
        first = 0
        for group in groups:
            assert group is not None  # Checked above.
            found.append(group + first)
            first += int(group.max()) + 1
        return np.concatenate(found)

    def __len__(self) -> int:
        return len(self.step)

    def balanced(self, weights: ArrayLike) -> NDArray[np.float64]:
        """Scales weights (N,) of windows so that their sum per store is the weight of the store."""
        given = np.asarray(weights, np.float64)
        totals = np.bincount(self.source, given, len(self._parts))
        return np.asarray(given * (self._weights / totals)[self.source])

    def batch(self, indices: ArrayLike) -> Batch:
        """Reads windows; see `Windows.batch`."""
        chosen = np.asarray(indices, np.int64)
        if chosen.ndim != 1 or (chosen.size and not 0 <= chosen.min() <= chosen.max() < len(self)):
            raise IndexError(f"There are windows 0 to {len(self) - 1}; got {chosen}.")
        rows = [np.flatnonzero(self.source[chosen] == number) for number in range(len(self._parts))]
        read = [
            (each, self._read(number, chosen[each]))
            for number, each in enumerate(rows)
            if len(each)
        ]
        batch = {}
        for key in self._keys if read else ():
            example = read[0][1][key]
            batch[key] = np.empty((len(chosen), *example.shape[1:]), example.dtype)
            for each, part in read:
                batch[key][each] = part[key]
        batch["episode"] = self.episode[chosen]
        return batch

    def _read(self, number: int, chosen: Array) -> Batch:
        """Reads windows of one store, with the keys of all slots."""
        part = self._parts[number]
        slot_of = self._cameras[number]
        batch = {
            _renamed(key, slot_of): value
            for key, value in part.batch(chosen - self._first[number]).items()
        }
        for camera in self.contract.cameras:
            batch[f"present/{camera.name}"] = np.full(len(chosen), camera.name in slot_of.values())
            for prefix, times in self._seen_at:
                matrices = {f"{prefix}{kind}/{camera.name}" for kind in _UNKNOWN}
                if not matrices <= set(batch):  # One of the two has no meaning alone.
                    batch = {key: value for key, value in batch.items() if key not in matrices}
                nothing = _nothing(camera, prefix, (len(chosen), *times), batch[f"{prefix}time"])
                batch |= {key: value for key, value in nothing.items() if key not in batch}
        return batch


def _filled(source: Source, contract: Contract, slots: Sequence[str]) -> dict[str, str]:
    """Returns the chosen slots that a store fills, by the name of the camera."""
    filled = {name: slot for slot, name in source.slots(contract).items() if slot in slots}
    if slots and not filled:
        raise ValueError(
            f"{source.path} fills none of the slots {slots}; it has {source.slots(contract)}."
        )
    return filled


def _contract(store: EpisodeStore, names: Sequence[str] | None) -> Contract:
    return store.episode(training_names(store, names)[0], removed=True).attributes.contract


def _common(known: Camera, camera: Camera, where: str) -> Camera:
    """Returns a camera with the depth and geometry of either of two cameras."""
    sizes = [(one.height, one.width) for one in (known, camera)]
    if sizes[0] != sizes[1]:
        got = " and ".join(f"{height}x{width}" for height, width in sizes)
        raise ValueError(
            f"{where} fill slot {camera.name!r} with {got} pixels; make copies of the same size "
            "with stringline-data cache."
        )
    for field_name in ("distortion_model", "distortion", "depth_unit_m"):
        one = getattr(known, field_name)
        other = getattr(camera, field_name)
        both_have_depth = known.depth is not None and camera.depth is not None
        if one != other and (both_have_depth or field_name != "depth_unit_m"):
            raise ValueError(
                f"{where} fill slot {camera.name!r} with cameras whose {field_name} differs: {one} "
                f"and {other}."
            )
    with_depth = known if known.depth is not None or camera.depth is None else camera
    return replace(with_depth, has_geometry=known.has_geometry or camera.has_geometry)


def _renamed(key: str, slot_of: Mapping[str, str]) -> str:
    """Returns a key of the contract with the slot in place of the name of the camera."""
    prefix = "past/" if key.startswith("past/") else ""
    kind, _, name = key.removeprefix(prefix).partition("/")
    if kind in ("rgb", "depth", "segmentation", *_UNKNOWN, "time") and name in slot_of:
        return f"{prefix}{kind}/{slot_of[name]}"
    return key


def _nothing(camera: Camera, prefix: str, shape: tuple[int, ...], time: Array) -> Batch:
    """Returns the placeholders for a missing camera, or for its missing depth and geometry."""
    size = (camera.height, camera.width)
    found: Batch = {"rgb": np.zeros((*shape, *size, 3), np.uint8), "time": time}
    if camera.depth is not None:
        found["depth"] = np.zeros((*shape, *size), np.uint16)
    if camera.has_geometry:
        found |= {
            kind: np.broadcast_to(matrix, (*shape, *matrix.shape))
            for kind, matrix in _UNKNOWN.items()
        }
    return {f"{prefix}{kind}/{camera.name}": value for kind, value in found.items()}
