"""Reader of RLDS, the form of Open X-Embodiment: a TensorFlow data set whose examples are episodes.

A step has `observation`, `action`, `reward`, `is_first`, `is_last` and `is_terminal` (Ramos et al.,
2021, arXiv 2111.02767); names and meaning of the numbers differ between data sets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.formats.checks import STAMPS, check_rate, image, inside, joined
from stringline.datasets.formats.droid import RLDS_POSES, DroidCalibrations, rlds_poses
from stringline.datasets.formats.foreign import (
    NOT_CHOSEN,
    UNUSED_IMAGES,
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
    camera_times,
    keys_of,
    named_rate,
)
from stringline.datasets.formats.image_codecs import (
    UNIT_M,
    DepthOptions,
    checked_source,
    counts,
    decoded,
    depth_counts,
    stored_unit,
)
from stringline.datasets.formats.tfds import (
    STEPS,
    Feature,
    Record,
    TfdsLayout,
    example,
    read_layout,
    records,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays

INSTRUCTIONS = ("language_instruction", "observation/natural_language_instruction")
REWARD = "reward"
FILE_PATH = "episode_metadata/file_path"
_ENDS = ("is_first", "is_last")  # Each episode of a store has them by its length.
_OBSERVATION = "observation/"


class RldsReader:
    """Reads RLDS and Open X-Embodiment without TensorFlow."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float | None = None,
        state: str | Sequence[str] | None = None,
        action: str | Sequence[str] = ("action",),
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
        instruction: str | None = None,
        split: str | None = None,
        drop_last: bool = False,
        droid: str | None = None,
    ) -> None:
        """Sets the meaning of the features of a step.

        Args:
            layout: Meaning of the numbers of state and action.
            control_hz: Steps per second, which the files do not contain.
            state: The features with the joint state, one behind the other; None without a state.
            action: The features with the action.
            cameras: Name of the camera by feature; None takes all colour images, {} none.
            depth: Feature of the depth by feature of the colours.
            depth_unit_m: Metres per stored number of depth; None: 0.001 for integers, 1 for floats.
            depth_source: Source of the depth: `measured`, `simulated` or `estimated`.
            instruction: The feature with the instruction; None looks for its usual names.
            split: Split to import; None takes all.
            drop_last: Whether to leave out the last step, whose action has no meaning in RLDS's
                definition; many data sets have one.
            droid: Folder with DROID's annotations, which calibrate its fixed cameras: each of them
                that `cameras` chooses must be in them. None leaves the annotations out.

        Raises:
            ValueError: The rate is missing or invalid.
        """
        self._layout = layout
        self._hz = named_rate(control_hz, "RLDS")
        self._state = keys_of("format.state", state)
        self._action = keys_of("format.action", action, needed=True)
        self._cameras = cameras
        self._depth = depth or {}
        self._unit_m = DepthOptions(unit_m=depth_unit_m).unit_m
        self._source: DepthSource = checked_source(depth_source)
        self._instruction = instruction
        self._split = split
        self._drop_last = drop_last
        self._droid = None if droid is None else Path(droid)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the episodes of a data set: the folder of a version, or one above it.

        Raises:
            ValueError: It is not a data set of TFDS in RLDS's form, or a feature does not exist.
        """
        layout = read_layout(path, self._split)
        named = [*self._state, *self._action, *(self._cameras or ()), *self._depth]
        named += [*self._depth.values(), *([self._instruction] if self._instruction else [])]
        for name in named:
            try:
                layout.feature(name)
            except ValueError as error:
                raise ValueError(f"{error} With their shapes: {layout.described()}.") from error
        droid = None if self._droid is None else DroidCalibrations.read(self._droid)
        for split, file in layout.files:
            number = 0
            try:
                for record in records(inside(layout.root, file)):
                    yield Reference(
                        file.name,
                        record.number,
                        partial(self._read, layout, split, record, droid),
                    )
                    number = record.number + 1
            except ForeignDataError as error:  # The records before the damage are valid.
                yield Reference(file.name, number, partial(_fail, str(error)))

    def _read(
        self, layout: TfdsLayout, split: str, record: Record, droid: DroidCalibrations | None
    ) -> ImportedEpisode:
        episode = _Steps(layout, example(record.read()))
        state_names, state = episode.vector(self._state)
        action_names, action = episode.vector(self._action)
        steps = len(action) - self._drop_last
        if steps < 1:
            raise ForeignDataError("It has no steps.")
        meaning = self._layout.meaning(state_names, action_names)
        cameras = self._chosen(layout)
        known = {old: self._camera(episode, old, new) for old, new in cameras.items()}
        found, geometry, extra = episode.calibrated(known, droid)
        contract = meaning.contract(list(found.values()), self._hz)
        time = np.arange(steps) / self._hz
        arrays = {
            "time": time,
            **joint_arrays(
                meaning,
                (" + ".join(self._state), state[:steps] if self._state else None),
                (" + ".join(self._action), action[:steps]),
            ),
            **camera_times(contract, time),
            **geometry,
        }
        for name, feature in layout.features.items():
            stamps = name.rpartition("/")[2] in STAMPS and feature.kind == "tensor"
            if stamps and episode.has(name):
                check_rate(name, episode.rows(name), self._hz)
        if REWARD in layout.features:
            arrays["reward"] = episode.rows(REWARD)[:steps].astype(np.float32)
        poses, invalid_poses = episode.poses(cameras)
        return ImportedEpisode(
            contract,
            arrays,
            self._images(episode, found, steps),
            instruction=self._text(episode, layout),
            extra={"split": split, **extra},
            skipped_fields=self._skipped_fields(layout, episode) | invalid_poses,
            camera_poses=poses,
        )

    def _images(
        self, episode: "_Steps", cameras: Mapping[str, Camera], steps: int
    ) -> dict[str, Frames]:
        images: dict[str, Frames] = {}
        for old, camera in cameras.items():
            images[f"rgb/{camera.name}"] = partial(episode.images, old, steps, camera, image)
            if camera.depth:
                images[f"depth/{camera.name}"] = partial(
                    episode.images, self._depth[old], steps, camera, self._depth_check(camera)
                )
        return images

    def _depth_check(self, camera: Camera) -> Callable[[str, int, Array, int, int], Array]:
        """Returns the function that makes stored depth of an image."""
        unit = self._unit_m
        if unit is None:
            return counts
        stored = camera.depth_unit_m
        return lambda key, step, found, *size: depth_counts(
            (key, step), found, (size[0], size[1]), unit, stored
        )

    def _skipped_fields(self, layout: TfdsLayout, episode: "_Steps") -> dict[str, str]:
        """Returns the features that the episode lacks, with the reason."""
        cameras = self._chosen(layout)
        depth = [self._depth[name] for name in cameras if name in self._depth]
        instruction = self._instruction_feature(layout)
        used = {*self._state, *self._action, *cameras, *depth, instruction, REWARD, *_ENDS}
        skipped_fields = {
            name: UNUSED_IMAGES if feature.kind == "image" else NOT_CHOSEN
            for name, feature in layout.features.items()
            if name not in used
        }
        poses = {RLDS_POSES.get(name) for name in cameras}
        others = [key for key in episode.others() if key not in poses]
        return skipped_fields | dict.fromkeys(others, "not a feature of the steps")

    def _chosen(self, layout: TfdsLayout) -> Mapping[str, str]:
        """Returns the names of the cameras by feature; a default name lacks `observation/`."""
        if self._cameras is not None:
            return self._cameras
        return {
            name: name.removeprefix(_OBSERVATION).replace("/", "_")
            for name, feature in layout.features.items()
            if feature.kind == "image" and feature.shape[-1:] != (1,)
        }

    def _camera(self, episode: "_Steps", old: str, new: str) -> Camera:
        height, width = episode.image(old, 0).shape[:2]
        if old not in self._depth:
            return Camera(new, height, width, has_geometry=False)
        dtype = episode.image(self._depth[old], 0).dtype
        unit = UNIT_M if self._unit_m is None else stored_unit(dtype, self._unit_m)
        return Camera(new, height, width, self._source, unit, has_geometry=False)

    def _text(self, episode: "_Steps", layout: TfdsLayout) -> str:
        """Returns the instructions of the steps without repetitions, joined."""
        name = self._instruction_feature(layout)
        if name is None:
            return ""
        values = episode.values(name)
        if not isinstance(values, list):
            raise ForeignDataError(f"{name} has numbers; an instruction is text.")
        return "; ".join(dict.fromkeys(value.decode(errors="replace") for value in values))

    def _instruction_feature(self, layout: TfdsLayout) -> str | None:
        usual = [name for name in INSTRUCTIONS if name in layout.features]
        return self._instruction or next(iter(usual), None)


def _fail(message: str) -> ImportedEpisode:
    raise ForeignDataError(message)


class _Steps:
    """The steps of an episode."""

    def __init__(self, layout: TfdsLayout, values: Mapping[str, Feature]) -> None:
        self._layout = layout
        self._values = values

    def values(self, name: str) -> Feature:
        """Returns the values of a feature, those of all steps one behind the other."""
        key = f"{STEPS}/{name}"
        if key not in self._values:
            raise ForeignDataError(f"The record lacks the feature {key}.")
        return self._values[key]

    def has(self, name: str) -> bool:
        """Returns whether the record has a feature of the steps."""
        return f"{STEPS}/{name}" in self._values

    def others(self) -> list[str]:
        """Returns the names of the features of the whole episode."""
        return [key for key in self._values if not key.startswith(f"{STEPS}/")]

    def poses(self, cameras: Mapping[str, str]) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns DROID's poses by the name of the camera, and why others are left out."""
        return rlds_poses(self._values, cameras)

    def calibrated(
        self, cameras: Mapping[str, Camera], droid: DroidCalibrations | None
    ) -> tuple[Mapping[str, Camera], dict[str, Array], dict[str, Any]]:
        """Returns the cameras, the arrays of calibrated ones, and the identifier of the episode."""
        if droid is None:
            return cameras, {}, {}
        path = self._values.get(FILE_PATH)
        if not isinstance(path, list) or not path:
            raise ForeignDataError(f"The record has no {FILE_PATH}, by which DROID is calibrated.")
        name = droid.episode(path[0].decode(errors="replace"))
        arrays = droid.arrays(name, cameras)
        found = {
            old: replace(camera, has_geometry=f"intrinsics/{camera.name}" in arrays)
            for old, camera in cameras.items()
        }
        return found, arrays, {"droid_episode": name}

    def rows(self, name: str, steps: int | None = None) -> Array:
        """Returns the values (T, ...) of a tensor, of a known number of steps if it is given."""
        feature = self._layout.feature(name)
        values = self.values(name)
        size = 1 if isinstance(values, list) else feature.size() or 1
        return feature.rows(name, values, len(values) // size if steps is None else steps)

    def vector(self, names: Sequence[str]) -> tuple[list[str], Array]:
        """Returns the names of the numbers of several features, and their values (T, D)."""
        series: dict[str, Array] = {}
        for name in names:
            steps = len(next(iter(series.values()))) if series else None
            series[name] = self.rows(name, steps)
        return joined(series, flat=True)

    def image(self, name: str, step: int) -> Array:
        """Returns an image (H, W, 3), or depth (H, W) or (H, W, 1)."""
        values = self.values(name)
        if self._layout.feature(name).kind == "tensor":
            shown: Array = self.rows(name)[step]
            return shown.astype(self._layout.feature(name).type_of_numbers(name))
        if not isinstance(values, list) or step >= len(values):
            raise ForeignDataError(f"{name} has {len(values)} images.")
        return decoded(name, step, values[step])

    def images(self, name: str, steps: int, camera: Camera, check: Any) -> Iterator[Array]:
        """Yields the images of the steps after a check."""
        for step in range(steps):
            yield check(name, step, self.image(name, step), camera.height, camera.width)
