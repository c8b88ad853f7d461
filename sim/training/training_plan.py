"""The plan of a training: what follows from one look at its data, and the record of the run.

The data decide options that the command line leaves open: which coordinates give image tokens a
position, how far away patches without depth are, and whether the policy has a linear part.
"""

import copy
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.contract.contract import Camera
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.loading.mixture import MixedWindows
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.coordinates.coordinates import RayPlaces
from stringline.encoders.training.checkpoint import ASKED_FOR, load_description
from stringline.encoders.training.settings import process_count
from stringline.encoders.training.trainer import Trainer
from stringline.encoders.vision.rgbd import ImageTokens, presence
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.checkpoints.load import build_policy, find_checkpoint
from stringline.policies.observation.observation_encoder import ObservationEncoder
from stringline.policies.observation.observation_settings import read_cameras
from stringline.sim.training.training_data import TrainingData, tensors
from stringline.sim.training.training_settings import TrainingSettings

logger = logging.getLogger(__name__)

CHECKPOINT_POLICY = "_checkpoint_"
"""Key of `configs/policy/checkpoint.yaml`."""
NETWORK_GROUPS = (
    "policy",
    "encoder",
    "coordinates",
    "frames",
    "depth",
    "normalisation",
    "action",
    "gripper",
    "action_places",
    "history",
    "instruction",
    "training_recipe",
)
"""Groups whose choices are parts of a policy."""
GROUP = "coordinates"
GRIDS = {
    f"{GROUP}.places": ("stringline.GridPlaces", "stringline.PatchDepthPlaces"),
    "policy.observation_encoder": ("stringline.PlainVisionEncoder",),
}
"""Classes with an option `grid`, by where the configuration has them."""
GRID = 8  # That of their YAML files, for images of 128 x 128 pixels.
PATCH = 16
PRIOR_DEPTHS = f"{GROUP}.places.depth_m"
POSTURE = "policy.posture"
LEAST = 0.5
RAYS_TARGET = "stringline.RayPlaces"
MOVING_DEPTH_M = 0.3
MOVED_M = 0.01  # Smaller motions are noise of a calibration.
_COUNTED = 16


@dataclass(frozen=True)
class Decision:
    """An option that the data decided, since the command line leaves it open.

    Attributes:
        option: The option, such as `coordinates`.
        value: Its value, as on a command line.
        reason: Why, a sentence.
    """

    option: str
    value: object
    reason: str

    def apply(self, config: DictConfig) -> None:
        """Sets the option in a configuration, for a group the file of the choice."""
        value = self.value
        if self.option == GROUP:
            value = completed(CONFIGS, f"{GROUP}/{value}")
        with open_dict(config):
            OmegaConf.update(config, self.option, value, merge=False)


def with_policy_of_checkpoint(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Returns a configuration in which `policy=checkpoint` is the policy of `initialise_from`.

    Args:
        config: The configuration of `stringline-train`.
        overrides: The command line, `key=value`.

    Raises:
        ValueError: There is no checkpoint, or the command line has options of another policy.
    """
    if CHECKPOINT_POLICY not in config.policy:
        return config
    checkpoint = config.initialise_from
    if checkpoint is None:
        raise ValueError("policy=checkpoint needs a checkpoint; add initialise_from=CHECKPOINT.")
    for key in (override.lstrip("+~").partition("=")[0] for override in overrides):
        if re.split(r"[./@]", key)[0] in NETWORK_GROUPS and key != "policy":
            raise ValueError(
                f"{key} has no effect with policy=checkpoint, which takes all options of the "
                f"policy from {checkpoint}. Leave it out, or choose another policy."
            )
    model = load_description(find_checkpoint(str(checkpoint))).get("model")
    if not isinstance(model, dict) or not isinstance(model.get("_target_"), str):
        raise ValueError(f"{checkpoint} is not the checkpoint of a policy.")
    config = copy.deepcopy(config)
    with open_dict(config):
        config.policy = model
    return config


def decided(
    config: DictConfig, data: TrainingData, overrides: Sequence[str]
) -> tuple[DictConfig, list[Decision]]:
    """Returns a configuration with the options that the data decide, and these; the log says why.

    Options of the command line are kept.

    Args:
        config: The configuration of `stringline-train`.
        data: The data, of which the first training episode of each store is read.
        overrides: The command line, `key=value`.
    """
    config = copy.deepcopy(config)
    decisions: list[Decision] = []
    given = [override.lstrip("+~").partition("=")[0] for override in overrides]
    # In this order: rays have prior depths, and a grid has a size.
    for decide in (_coordinates, _prior_depths, _grid, _posture):
        if (decision := decide(config, data, given)) is not None:
            decision.apply(config)
            decisions.append(decision)
            logger.info("%s", decision.reason)
    return config, decisions


def _coordinates(config: DictConfig, data: TrainingData, given: Iterable[str]) -> Decision | None:
    """Decides the coordinates if metric ones suit less than half of the images.

    Metric places need depth and calibration; without depth `rays` and without calibration `grid`
    take their place.
    """
    encoder = config.policy.get("observation_encoder") or {}
    if any(GROUP in option for option in given) or GROUP not in encoder:
        return None
    cameras = read_cameras(data.contract, encoder.get("cameras"))
    measured = [each for each in cameras if each.depth is not None and each.has_geometry]
    if _pixels(measured) >= LEAST * _pixels(cameras):
        return None
    chosen = _suitable(cameras)
    having = f"Only {', '.join(each.name for each in measured)}" if measured else "None"
    names = ", ".join(each.name for each in cameras)
    reason = f"{having} of {names} have depth and calibration, so {GROUP}={chosen} was chosen."
    return Decision(GROUP, chosen, reason)


def _prior_depths(config: DictConfig, data: TrainingData, given: Iterable[str]) -> Decision | None:
    """Decides the depth of patches without one for cameras that move, for places on rays.

    Fingers and held objects are nearer than the plane where rays end otherwise.
    """
    places = config.get(GROUP, {}).get("places", {})
    if places.get("_target_") != RAYS_TARGET or places.get("depth_m") is not None:
        return None
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
    reason = (
        f"These cameras move: {', '.join(moving)}. Their patches without depth are "
        f"{MOVING_DEPTH_M:g} m in front of them ({PRIOR_DEPTHS})."
        if moving
        else f"No camera moves, so {PRIOR_DEPTHS} is empty."
    )
    return Decision(PRIOR_DEPTHS, dict.fromkeys(moving, MOVING_DEPTH_M), reason)


def _grid(config: DictConfig, data: TrainingData, given: Iterable[str]) -> Decision | None:
    """Decides the grid of patches by the size of the images, so that a unit is a patch.

    Columns and rows then count the same number of pixels.
    """
    for where, targets in GRIDS.items():
        found = OmegaConf.select(config, where) or {}
        option = f"{where}.grid"
        if found.get("_target_") not in targets or found.get("grid") != GRID or option in given:
            continue
        encoder = config.policy.get("observation_encoder") or {}
        cameras = read_cameras(data.contract, encoder.get("cameras"))
        if (where.startswith(GROUP) and GROUP not in encoder) or not cameras:
            continue
        patch = int((encoder.get("embedding") or {}).get("patch", PATCH))
        largest = max(cameras, key=lambda each: each.height * each.width)
        sides = [largest.height, largest.width]
        grid = [max(1, round(side / patch)) for side in sides]
        if grid == [GRID, GRID]:
            return None
        reason = f"Images of {sides[0]}x{sides[1]} have {option}={grid}: a unit is {patch} pixels."
        for each in cameras:
            rows = each.height / grid[0]
            columns = each.width / grid[1]
            if (rows, columns) != (patch, patch):
                reason += f" In {each.name} it is {columns:.3g} columns or {rows:.3g} rows."
        return Decision(option, grid, reason)
    return None


def _posture(config: DictConfig, data: TrainingData, given: Iterable[str]) -> Decision | None:
    """Decides that the policy has no linear part if nothing measures the joints."""
    asked = any(option.startswith(POSTURE) for option in given)
    if asked or data.contract.joints or config.policy.get("posture") is None:
        return None
    reason = f"The data have no measured joints, so {POSTURE}=null was chosen."
    return Decision(POSTURE, None, reason)


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


@dataclass(frozen=True)
class RunRecord:
    """The facts of a training, as plain data.

    Attributes:
        deciding: Those that decide its weights; a run continues only if they are the same.
        training: Those that its checkpoints name, for `TrainingRecord`.
    """

    deciding: Mapping[str, Any]
    training: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """What a training does.

    Attributes:
        model: Configuration of the policy with `_target_`.
        data: Episodes for training and held-out ones.
        trainer: Optimisation settings.
        directory: Directory of the run.
        settings: Data, initial weights and evaluation.
        decisions: The options that the data decided.
        trust: Packages whose classes the configuration may name.
    """

    model: Mapping[str, Any]
    data: TrainingData
    trainer: Trainer
    directory: Path
    settings: TrainingSettings
    decisions: Sequence[Decision] = ()
    trust: Trust = ASKED_FOR

    def policy(self) -> LearnedPolicy:
        """Builds the policy with its initial weights.

        Raises:
            ValueError: The policy or its initial weights do not fit the data.
        """
        if CHECKPOINT_POLICY in self.model:
            raise ValueError(
                "policy=checkpoint is a choice of stringline-train, with "
                "initialise_from=CHECKPOINT; choose another policy here."
            )
        initialisation = self.settings.initialisation
        statistics = self.data.statistics(self.model, self.trust)
        if initialisation:
            statistics = initialisation.statistics(self.data.contract, statistics)
        torch.manual_seed(self.trainer.seed)
        policy = build_policy(self.model, self.data.contract, statistics, self.trust)
        if initialisation:
            initialisation.load(policy)
        if isinstance(policy, ChunkPolicy):
            if initialisation is None or not initialisation.keep_normalisation:
                self.data.fit(policy)
            self.data.check_chunk(policy, self.settings.pad_last_action_s)
        return policy

    def windows(self, policy: LearnedPolicy) -> Windows | MixedWindows:
        """Returns the training windows."""
        settings = self.settings
        return self.data.windows_for(
            policy,
            self.data.training,
            segments=settings.reads_segments,
            labels=settings.labels,
            pad_last_action_s=settings.pad_last_action_s,
        )

    def held_out_windows(self, policy: LearnedPolicy) -> Windows | MixedWindows | None:
        """Returns the windows of held-out episodes; None if a store has too few episodes."""
        if not all(self.data.held_out):
            return None
        return self.data.windows_for(
            policy, self.data.held_out, pad_last_action_s=self.settings.pad_last_action_s
        )

    def record(self, windows: int) -> RunRecord:
        """Collects the facts of the run, given the number of training windows."""
        data = self.data
        settings = self.settings
        initialisation = settings.initialisation.describe() if settings.initialisation else None
        deciding = {
            "model": dict(self.model),
            "trainer": self.trainer.fingerprint(),
            "processes": process_count(),
            "store": data.sources,
            "training": data.names_of(data.training),
            "held_out": data.names_of(data.held_out),
            "early": [settings.oversample_first_s, settings.oversample_factor],
            "equal_tasks": settings.equal_tasks,
            "pad_last_action_s": settings.pad_last_action_s,
            **settings.correcting,
            "augmentation": settings.transforms,
            "initialisation": initialisation,
        }
        training = {
            "episodes": sum(map(len, data.training)),
            "windows": windows,
            "steps": self.trainer.steps,
            "batch_size": self.trainer.batch_size,
            "seed": self.trainer.seed,
            "tasks": data.tasks(),
            "stores": data.digests(),
            "held_out": data.held_out_digests(),
            "instructions": data.instructions(),
            "robot_models": data.robot_models(),
            "worlds": data.worlds,
            "execution": settings.execution.to_dict() if settings.execution else None,
            "recipe": self._recipe(),
            "decisions": [asdict(decision) for decision in self.decisions],
            "initialisation": initialisation,
        }
        known = {name: fact for name, fact in training.items() if fact not in (None, [], {})}
        return RunRecord(deciding, known)

    def _recipe(self) -> dict[str, Any]:
        """Returns choices and options of the command, with the choices that the data decided."""
        recipe = dict(self.settings.recipe)
        choices = recipe.get("choices", {})
        of_data = {each.option: each.value for each in self.decisions if each.option in choices}
        return recipe | ({"choices": {**choices, **of_data}} if of_data else {})


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
