"""`stringline-data calibrate`."""

import logging
import sys
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.command.command_line import report_next
from stringline.datasets.editing.calibration import calibrate, scaled_intrinsics
from stringline.datasets.editing.edit import select
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of

_log = logging.getLogger(__name__)


def calibrate_episodes(config: DictConfig) -> None:
    """Adds or replaces the calibration of episodes, and names the command that checks it."""
    store = EpisodeStore.open(config.store)
    chosen = [config.episodes] if isinstance(config.episodes, str) else list(config.episodes)
    names = select(store, chosen)
    calibration = CameraCalibration.read(Path(config.cameras), tuple(config.uncalibrated))
    first = store.episode(names[0])
    new = calibrate(store, names, calibration)
    for sentence in scaled_intrinsics(first, calibration):
        _log.info("%s", sentence)
    sys.stdout.write(
        f"{len(new)} episodes of {store.path} have the calibrations of "
        f"{', '.join(calibration.cameras)}; the old episodes are in {trash_of(store.path)}.\n"
    )
    contract = store.episode(new[0]).attributes.contract
    compared = [camera for camera in contract.cameras if camera.depth and camera.has_geometry]
    check = {"check": True} if len(compared) > 1 else {}
    report_next("stringline-view", {"store": str(config.store), **check})
