"""The training that fits a store: its command line, and what the store lacks for others.

Policies cannot be imported here, so some of their needs are stated again; a test runs the command
lines.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stringline.datasets.command.command_line import command_line
from stringline.datasets.command.declarations import declared
from stringline.datasets.contract.contract import Camera
from stringline.datasets.loading.keyposes import episode_keyposes
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

PATCH = 16
"""Pixels per side of a patch, by default."""
USUAL_PATCHES = 256
"""Patches of all cameras in a training of the simulated tasks: four images of 128x128."""
MOST_PATCHES = 512
"""Above it a copy is smaller: with 2400, of two cameras of 480x640, a step takes 35 s of a core."""
CHUNK: int = declared("stringline.DiffusionPolicy")["chunk"].default  # type: ignore[assignment]
"""Actions of a chunk, by default."""
ENCODER = "policy/observation_encoder"
CAMERAS = "policy.observation_encoder.cameras"


@dataclass(frozen=True)
class NextTraining:
    """The training that fits a store.

    Attributes:
        command: Its command line; empty: there is none.
        notes: What the store lacks for another training, with the ways out, and other trainings.
    """

    command: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: EpisodeStore) -> "NextTraining":
        """Chooses the training for a store with at least one episode.

        Keyposes where kinematics, depth and calibration are known and every episode has keyposes;
        else chunks from patches at their places where the kinematics are known; else chunks from
        images.
        """
        episodes = store.episodes()
        contract = episodes[0].attributes.contract
        cameras = [camera for camera in contract.cameras if not _distorted(camera)]
        if lacks := [
            words
            for words, there in (
                ("measured joints", contract.joints),
                ("cameras with undistorted images", cameras),
            )
            if not there
        ]:
            return cls("", (f"stringline-train needs {' and '.join(lacks)}; the data have none.",))
        if not contract.arms:
            note = (
                "The data have no gripper poses, because the kinematics of the arms are unknown, "
                "so image patches and grippers have no common space. Either import them again into "
                "another store with layout.embodiment=FILE.urdf, menagerie:NAME or NAME "
                "(docs/my-robot.md), or train with the encoder of plain images, vit."
            )
            command, notes = _chunks(store, episodes, cameras, {ENCODER: "vit"})
            return cls(command, (*notes, note))
        several = len({episode.attributes.instruction for episode in episodes}) > 1
        told = {"instruction": "task"} if several else {}
        chunks, notes = _chunks(store, episodes, cameras, told)
        found, why = _keyposes(store, episodes, cameras, told)
        if found:
            return cls(found, (*notes, f"Chunks of actions instead of keyposes: {chunks}"))
        return cls(chunks, (*notes, f"Keyposes (docs/keyposes.md) are not possible: {why}"))


def _distorted(camera: Camera) -> bool:
    return camera.has_geometry and camera.distortion_model != "none"


def _chosen(episodes: Sequence[StoredEpisode], cameras: Sequence[Camera]) -> dict[str, object]:
    """Returns the option with the cameras, if not all are used."""
    if len(cameras) == len(episodes[0].attributes.contract.cameras):
        return {}
    return {CAMERAS: [camera.name for camera in cameras]}


def _command(path: Path, options: Mapping[str, object]) -> str:
    places = {"dataset.path": str(path), "output": f"{path}_policy"}
    return command_line("stringline-train", {**places, **options})


def _chunks(
    store: EpisodeStore,
    episodes: Sequence[StoredEpisode],
    cameras: Sequence[Camera],
    chosen: Mapping[str, object],
) -> tuple[str, tuple[str, ...]]:
    """Returns the training of a policy of chunks, for images of any size, and a note on these."""
    longest = max(episode.steps for episode in episodes)
    chunk = {"policy.chunk": longest} if longest < CHUNK else {}
    options = {**chosen, **chunk, **_chosen(episodes, cameras)}
    patches = _patches(cameras)
    if patches <= MOST_PATCHES and not _cut(cameras):
        return _command(store.path, options), ()
    rows, columns = training_size(cameras)
    copy = Path(f"{store.path}_{rows}x{columns}")
    sizes = {"store": str(store.path), "output": str(copy), "height": rows, "width": columns}
    copying = f"stringline-data {command_line('cache', sizes)}"
    why = (
        f"Rows and columns of images must be multiples of the patch, {PATCH},"
        if _cut(cameras)
        else f"The images have {patches} patches, too many for a training on CPU cores,"
    )
    note = (
        f"{why} so a copy with smaller images comes first; image_size=[{rows},{columns}] "
        "image_fit=crop of the import does the same."
    )
    return f"{copying} && {_command(copy, options)}", (note,)


def _patches(cameras: Sequence[Camera]) -> int:
    return sum((camera.height // PATCH) * (camera.width // PATCH) for camera in cameras)


def _cut(cameras: Sequence[Camera]) -> bool:
    """Returns whether the edge of an image cuts a patch."""
    return any(camera.height % PATCH or camera.width % PATCH for camera in cameras)


def training_size(cameras: Sequence[Camera]) -> tuple[int, int]:
    """Returns rows and columns of whole patches for a copy with smaller images.

    At most the size of the smallest camera. Images with more than `MOST_PATCHES` patches get about
    `USUAL_PATCHES`, with the rows and columns whose ratio is nearest to that of the images.
    """
    height = min(camera.height for camera in cameras)
    width = min(camera.width for camera in cameras)
    most_rows, most_columns = max(1, height // PATCH), max(1, width // PATCH)
    if _patches(cameras) <= MOST_PATCHES:
        return most_rows * PATCH, most_columns * PATCH
    most = USUAL_PATCHES / len(cameras)
    wide = width / height

    def stretched(size: tuple[int, int]) -> float:
        return abs(math.log(size[1] / size[0] / wide))

    # Half of the patches at least; between them is a size of nearly every ratio, such as 3:4.
    least = min(most, most_rows * most_columns) / 2
    sizes = [
        (rows, columns)
        for rows in range(1, most_rows + 1)
        for columns in range(1, most_columns + 1)
        if least <= rows * columns <= most
    ] or [(1, 1)]
    rows, columns = min(sizes, key=lambda size: (round(stretched(size), 2), -size[0] * size[1]))
    return rows * PATCH, columns * PATCH


def _keyposes(
    store: EpisodeStore,
    episodes: Sequence[StoredEpisode],
    cameras: Sequence[Camera],
    chosen: Mapping[str, object],
) -> tuple[str, str]:
    """Returns the training of keyposes, or why there is none."""
    seeing = [each for each in cameras if each.depth is not None and each.has_geometry]
    if not seeing:
        return "", "no camera has depth and calibration (cameras=FILE, docs/calibration.md)."
    try:
        for episode in episodes:
            episode_keyposes(episode, KeyposeSettings())
    except ValueError as error:
        return "", str(error)
    options = {"training_recipe": "keyposes", **chosen, **_chosen(episodes, seeing)}
    return _command(store.path, options), ""
