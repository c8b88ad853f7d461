"""Which image tokens of a training have a position, and the coordinates that give them one."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor

import stringline
from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.mixture import MixedWindows
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.coordinates.ray_places import RayPlaces
from stringline.encoders.vision.rgbd import ImageTokens, presence
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.observation.observation_encoder import ObservationEncoder
from stringline.policies.observation.observation_settings import read_cameras
from stringline.sim.training.training_data import TrainingData, tensors

logger = logging.getLogger(__name__)

GROUP = "coordinates"
LEAST = 0.5
RAYS_TARGET = "stringline.RayPlaces"
MOVING_DEPTH_M = 0.3
MOVED_M = 0.01  # Smaller motions are noise of a calibration.
_COUNTED = 16


def choose_coordinates(
    config: DictConfig, data: TrainingData, overrides: Sequence[str]
) -> str | None:
    """Chooses coordinates that fit the cameras of the data; the log says which.

    Metric places need depth and calibration; without depth `rays` and without calibration `grid`
    take their place, if metric ones suit less than half of the images. Coordinates of the command
    line are kept. For places on rays, cameras that move in the episodes get a prior depth, if none
    is given: fingers and held objects are nearer than the plane where rays end otherwise.

    Args:
        config: The configuration of `stringline-train`; changed in place.
        data: The data, of which the first episode of each store is read.
        overrides: The command line, `key=value`.

    Returns:
        The chosen coordinates; None: those of the configuration are kept.
    """
    chosen = _replaced(config, data.contract, overrides)
    _choose_prior_depths(config, data)
    return chosen


def _replaced(config: DictConfig, contract: Contract, overrides: Sequence[str]) -> str | None:
    given = any(GROUP in override.partition("=")[0] for override in overrides)
    encoder = config.policy.get("observation_encoder") or {}
    if given or GROUP not in encoder:
        return None
    names = encoder.get("cameras")
    cameras = read_cameras(contract, names)
    measured = [each for each in cameras if each.depth is not None and each.has_geometry]
    if _pixels(measured) >= LEAST * _pixels(cameras):
        return None
    chosen = _suitable(cameras)
    file = Path(stringline.__file__).parent / "configs" / GROUP / f"{chosen}.yaml"
    with open_dict(config):
        config[GROUP] = OmegaConf.load(file)
    logger.info(
        "%s of %s have depth and calibration, so coordinates=%s was chosen.",
        f"Only {', '.join(each.name for each in measured)}" if measured else "None",
        ", ".join(each.name for each in cameras),
        chosen,
    )
    return chosen


def _choose_prior_depths(config: DictConfig, data: TrainingData) -> None:
    places = config.get(GROUP, {}).get("places", {})
    if places.get("_target_") != RAYS_TARGET or places.get("depth_m") is not None:
        return
    names = (config.policy.get("observation_encoder") or {}).get("cameras")
    moving = [
        camera.name
        for camera in read_cameras(data.contract, names)
        if any(
            _moves(episode, own[camera.name])
            for episode, own in zip(data.first_episodes, data.slots, strict=True)
            if camera.name in own
        )
    ]
    with open_dict(config):
        config[GROUP].places.depth_m = dict.fromkeys(moving, MOVING_DEPTH_M)
    if moving:
        logger.info(
            "These cameras move: %s. Their patches without depth are %g m in front of them "
            "(coordinates.places.depth_m).",
            ", ".join(moving),
            MOVING_DEPTH_M,
        )


def report_placed_tokens(policy: LearnedPolicy, windows: Windows | MixedWindows) -> None:
    """Logs the share of the image tokens that have a position; below half, with the remedy.

    The tokens of windows over the whole training are counted, without any effect on random numbers.
    """
    encoder = policy.observation_encoder
    if not isinstance(encoder, ObservationEncoder):
        return
    chosen = np.linspace(0, len(windows) - 1, min(_COUNTED, len(windows))).round()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        counts = _placed(encoder.tokenise, tensors(windows, chosen.astype(np.int64)))
    placed = sum(each for each, _ in counts.values())
    total = sum(each for _, each in counts.values())
    if not total:
        return
    cameras = ", ".join(
        f"{name} {100 * one / max(all_, 1):.0f} %" for name, (one, all_) in counts.items()
    )
    share = f"{100 * placed / total:.0f} % of the image tokens have a position ({cameras})"
    if placed >= LEAST * total:
        logger.info("%s.", share)
        return
    rays = isinstance(encoder.tokenise.coordinates, RayPlaces)
    remedy = "grid" if rays else _suitable(encoder.cameras)
    logger.warning("%s; coordinates=%s places them.", share, remedy)


def _placed(tokenise: ImageTokens, batch: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """Returns the numbers of placed and of all tokens of each camera in a batch."""
    found = {}
    places = tokenise.coordinates
    for camera in tokenise.cameras:
        images, view = tokenise.view(batch, camera, places.reads)
        known = places.patches(view, tokenise.patch, len(images), images.device)[1]
        known, present = presence(batch, camera, known)
        everything = known.numel() if present is None else int(present.sum())
        found[camera.name] = (int(known.sum()), everything)
    return found


def _moves(episode: StoredEpisode, camera: str) -> bool:
    """Returns whether a calibrated camera moves in an episode."""
    key = f"T_base_camera/{camera}"
    if key not in episode.arrays:
        return False
    poses = np.asarray(episode.arrays[key])
    return poses.ndim == 3 and bool(np.ptp(poses[:, :3, 3], axis=0).max() > MOVED_M)


def _suitable(cameras: Sequence[Camera]) -> str:
    """Returns coordinates in which every patch of the cameras has a position."""
    return "rays" if all(camera.has_geometry for camera in cameras) else "grid"


def _pixels(cameras: Sequence[Camera]) -> int:
    return sum(camera.height * camera.width for camera in cameras)
