"""`stringline-data` import, export, images and annotations: exchange with foreign formats."""

import logging
import sys
from functools import partial
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.resampling import ImageSize, checked_image_size
from stringline.datasets.command.command_line import command_line, report_next
from stringline.datasets.contract.argument_checks import POSITIVE, printable, unknown_name
from stringline.datasets.formats.foreign import refusals, table_of
from stringline.datasets.formats.importing import ImportedCameras
from stringline.datasets.formats.limited_import import import_limited
from stringline.datasets.images.coco import write_coco
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.omni3d import write_omni3d
from stringline.datasets.images.reading import Omissions, convert_data_set
from stringline.datasets.store.store import EpisodeStore, new_store
from stringline.datasets.verbs.next_training import NextTraining

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
