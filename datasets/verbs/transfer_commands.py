"""`stringline-data` import, export, images and annotations: exchange with foreign formats."""

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.resampling import ImageSize, checked_image_size
from stringline.datasets.command.application import command_line, report_next
from stringline.datasets.command.declarations import declared
from stringline.datasets.contract.argument_checks import POSITIVE, printable, unknown_name
from stringline.datasets.contract.contract import Camera
from stringline.datasets.formats.foreign import refusals, table_of
from stringline.datasets.formats.importing import ImportedCameras
from stringline.datasets.formats.limited_import import import_limited
from stringline.datasets.images.coco import write_coco
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.omni3d import write_omni3d
from stringline.datasets.images.reading import Omissions, convert_data_set
from stringline.datasets.loading.keyposes import episode_keyposes
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore, new_store

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

    Policies cannot be imported here, so some of their needs are stated again; a test runs the
    command lines.

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


logger = logging.getLogger(__name__)


def export_store(config: DictConfig) -> None:
    """Writes the episodes of a store in a foreign format."""
    store = EpisodeStore.open(config.store)
    skipped_fields = instantiate(config.target, _convert_="all").write(store, Path(config.path))
    sys.stdout.write(f"{len(store)} episodes exported to {config.path}.\n")
    sys.stdout.write(table_of(skipped_fields, len(store)))


def import_foreign(config: DictConfig) -> None:
    """Imports a foreign data set into a store and reports the result."""
    plain = OmegaConf.to_container(config.format, resolve=True)
    reader = partial(instantiate, plain, _convert_="all")
    reader()  # Its options are checked before a store is made.
    path = Path(config.path)
    if not path.exists():
        raise ValueError(f"There is no data set at {path}.")
    POSITIVE.check(disk_gib=config.disk_gib)
    cameras = ImportedCameras(
        _calibration(config), ImageSize.of(config.image_size, config.image_fit)
    )
    with new_store(config.store) as store:
        outcome = import_limited(
            reader,
            path,
            store,
            task=config.task_name or "",
            memory_gib=config.memory_gib,
            disk_gib=config.disk_gib,
            cameras=cameras,
        )
    sys.stdout.write(
        f"{len(outcome.imported)} episodes imported, {outcome.present} were in {config.store} "
        "already.\n"
    )
    sys.stdout.write(table_of(outcome.skipped_fields, len(outcome.imported)))
    for line in refusals(outcome.refused):
        sys.stdout.write(f"{printable(line)}\n")
    if outcome.refused:
        kept = len(outcome.imported) + outcome.present
        total = kept + len(outcome.refused)
        place = f"the others are in {config.store}" if kept else f"{config.store} has none of them"
        raise ValueError(f"{len(outcome.refused)} of {total} episodes were left out; {place}.")
    _report_training(EpisodeStore.open(config.store))


def _report_training(store: EpisodeStore) -> None:
    """Logs how to view the episodes, and as the last line how to train on them."""
    viewing = {"store": str(store.path)}
    found = NextTraining.of(store)
    for note in found.notes:
        logger.info("%s", note)
    if not found.command:
        report_next("stringline-view", viewing)
        return
    logger.info("To see an episode: %s", command_line("stringline-view", viewing))
    logger.info("Next: %s", found.command)


def _calibration(config: DictConfig) -> CameraCalibration | None:
    if config.cameras is None:
        if config.uncalibrated:
            raise ValueError("uncalibrated needs cameras=FILE, the calibrations of the others.")
        return None
    return CameraCalibration.read(Path(config.cameras), tuple(config.uncalibrated))


_WRITERS = {"coco": write_coco, "omni3d": write_omni3d}


def convert_images(config: DictConfig) -> None:
    """Converts a data set of labelled images or clips to a store."""
    size = None if config.image_size is None else checked_image_size(config.image_size)
    reader = instantiate(config.image_format, _convert_="all")
    omissions = Omissions()
    store = convert_data_set(reader, Path(config.path), Path(config.store), omissions, size)
    sys.stdout.write(f"{store.path}: {len(store)} {store.kind}.\n{omissions.table()}")


def write_annotations(config: DictConfig) -> None:
    """Writes the images of a store with a JSON file."""
    if config.kind not in _WRITERS:
        raise unknown_name("kind", config.kind, _WRITERS)
    store = ImageStore(config.store)
    omissions = _WRITERS[config.kind](store, Path(config.path))
    sys.stdout.write(f"{config.path}: {len(store)} images.\n{omissions.table()}")
