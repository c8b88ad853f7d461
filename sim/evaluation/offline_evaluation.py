"""Evaluation of a checkpoint on recorded episodes: the errors of its plans, without a simulation.

The plans at windows of recorded episodes are compared with what was recorded, and with two plans
that see no image; see `policies/probes/probes.py`. Errors are those of single plans from recorded
states: they do not tell how a policy reacts to its own mistakes.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.files.atomic import write_file
from stringline.datasets.loading.keyposes import NO_EVENT, PREFIX
from stringline.datasets.loading.windows import Windows
from stringline.datasets.pointclouds.clouds import find_episode
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.action_spaces.space import ContractActions
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, fit_remainder
from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.checkpoints.load import (
    CPU,
    checked_device,
    checkpoint_digest,
    is_address,
    load_policy,
)
from stringline.policies.checkpoints.training_record import TrainingRecord
from stringline.policies.probes.probes import (
    GRIPPERS,
    JOINTS,
    MotionErrors,
    joint_baselines,
    keypose_errors,
    keypose_metrics,
    linear_motion,
)

logger = logging.getLogger(__name__)

ALL = "all"
RESULT = "offline.json"
_ROWS = 16  # Windows at a time.
Planner = ChunkPolicy | KeyposePolicy


@dataclass(frozen=True, kw_only=True)
class OfflineSettings:
    """The settings of `stringline-eval dataset=STORE`, as in `configs/eval.yaml`.

    Attributes:
        checkpoint: Folder or name of a checkpoint.
        output: Folder of the result and the page.
        dataset: Store of the recordings.
        episodes: Names, prefixes or indices of episodes, or `all`; if None, the episodes that the
            training held out, as far as the checkpoint knows them, else all.
        windows: Largest number of windows, evenly spaced; if None, all.
        device: Where the policy computes: `cpu`, `cuda`, or `cuda:<number>`.

    Raises:
        ValueError: A value is out of range.
    """

    checkpoint: str
    output: Path
    dataset: Path
    episodes: str | int | Sequence[str | int] | None = None
    windows: int | None = 512
    device: str = CPU

    def __post_init__(self) -> None:
        if self.windows is not None:
            COUNT.check(**{"dataset.windows": self.windows})
        if is_address(self.checkpoint):
            raise ValueError(
                f"checkpoint is {self.checkpoint}, but dataset= needs the network itself; allowed: "
                "the folder or the name of a checkpoint."
            )


@dataclass(frozen=True)
class ChosenEpisodes:
    """The episodes of an evaluation.

    Attributes:
        names: Their names.
        others: Names of the other episodes of the store.
        why: Which they are, a sentence.
    """

    names: Sequence[str]
    others: Sequence[str]
    why: str

    @classmethod
    def of(cls, settings: OfflineSettings, store: EpisodeStore) -> "ChosenEpisodes":
        """Chooses the episodes of a store.

        Raises:
            ValueError: The store is empty, or has no episode of a name.
        """
        names = store.names()
        if not names:
            raise ValueError(f"{store.path} has no episodes.")
        chosen, why = _chosen(settings, store, names)
        return cls(chosen, [name for name in names if name not in set(chosen)], why)


def _chosen(
    settings: OfflineSettings, store: EpisodeStore, names: Sequence[str]
) -> tuple[list[str], str]:
    asked = settings.episodes
    held_out = TrainingRecord.read(settings.checkpoint).held_out
    known = [name for name in names if store.digest([name]) in held_out]
    if asked is None and known:
        return known, f"The {len(known)} episodes that the training held out were used."
    if asked is None or asked == ALL:
        seen = (
            f"{len(names) - len(known)} of them were not held out from the training"
            if known
            else "the checkpoint does not tell whether it was trained on them"
        )
        return list(names), f"All {len(names)} episodes of the store were used; {seen}."
    listed = [asked] if isinstance(asked, str | int) else asked
    wanted = list(dict.fromkeys(find_episode(names, str(name)) for name in listed))
    unseen = len(set(wanted) & set(known))
    return (
        wanted,
        f"{len(wanted)} named episodes were used; the training held {unseen} of them out.",
    )


@dataclass(frozen=True, eq=False)
class EpisodePlans:
    """The plans for the windows of one episode.

    Attributes:
        episode: The recording.
        steps: (W,) first steps of the windows.
        plans: (W, T, A) actions, or (W, arms, modes, ...) keyposes; see the policy's `predict`.
        errors: (W,) error of each plan; NaN where nothing was recorded to compare it with.
    """

    episode: StoredEpisode
    steps: NDArray[np.int64]
    plans: Tensor
    errors: NDArray[np.float64]

    @property
    def error(self) -> float:
        """The mean error; NaN if no plan has one."""
        known = self.errors[np.isfinite(self.errors)]
        return float(known.mean()) if len(known) else float("nan")


@dataclass(frozen=True, eq=False)
class OfflineResult:
    """The result of an evaluation on recordings.

    Attributes:
        settings: Its settings.
        policy: The policy.
        digest: Digest of the checkpoint.
        chosen: The episodes.
        metrics: The errors, with the names of `MotionErrors` or `KeyposeProbe`.
        measure: Name of the metric whose mean is the error of a plan.
        episodes: The plans for each episode.
        linear: Where the linear map was fitted, or why there is none, a sentence.
    """

    settings: OfflineSettings
    policy: Planner
    digest: str
    chosen: ChosenEpisodes
    metrics: Mapping[str, float]
    measure: str
    episodes: Sequence[EpisodePlans]
    linear: str

    @property
    def windows(self) -> int:
        """The number of windows."""
        return sum(len(each.steps) for each in self.episodes)

    def write(self) -> None:
        """Writes `offline.json`."""
        settings = self.settings
        plain: dict[str, Any] = {
            "checkpoint": settings.checkpoint,
            "digest": self.digest,
            "dataset": str(settings.dataset),
            "episodes": list(self.chosen.names),
            "chosen": self.chosen.why,
            "windows": self.windows,
            "control_hz": self.policy.contract.control_hz,
            "metrics": dict(self.metrics),
            "linear": self.linear,
            self.measure: {
                each.episode.name: each.error for each in self.episodes if np.isfinite(each.error)
            },
        }
        settings.output.mkdir(parents=True, exist_ok=True)
        write_file(settings.output / RESULT, json.dumps(plain, indent=1).encode())


def evaluate_offline(settings: OfflineSettings) -> OfflineResult:
    """Compares the plans of a checkpoint with recorded episodes.

    Raises:
        ValueError: The checkpoint is no chunk or keypose policy; the store does not fit it, or has
            no episode of a name.
    """
    device = checked_device(settings.device)
    policy = load_policy(settings.checkpoint).to(device)
    if not isinstance(policy, ChunkPolicy | KeyposePolicy):
        raise ValueError(
            f"dataset= does not measure a {type(policy).__name__}; allowed: classes derived from "
            "ChunkPolicy or KeyposePolicy."
        )
    store = EpisodeStore.open(settings.dataset)
    pin = store.pin()  # Before its episodes are listed.
    chosen = ChosenEpisodes.of(settings, store)
    first = store.episode(chosen.names[0]).attributes.contract
    if reasons := policy.contract.incompatibilities(first):
        raise ValueError(f"{store.path} does not fit {settings.checkpoint}. {' '.join(reasons)}")
    logger.info("%s", chosen.why)
    windows = Windows(store, policy.window_settings(), names=chosen.names)
    measured = (
        _Keyposes(policy)
        if isinstance(policy, KeyposePolicy)
        else _Motions(policy, [store.episode(name) for name in chosen.others])
    )
    episodes = _plans(policy, windows, settings.windows, store, measured)
    del pin
    return OfflineResult(
        settings,
        policy,
        checkpoint_digest(settings.checkpoint),
        chosen,
        measured.metrics(),
        measured.name,
        episodes,
        measured.linear,
    )


class _Motions:
    """Errors of planned actions, beside those of plans without images."""

    def __init__(self, policy: ChunkPolicy, others: Sequence[StoredEpisode]) -> None:
        """Fits the linear map to episodes that are not evaluated."""
        self._contract = policy.contract
        self._found = MotionErrors(policy.contract, policy.chunk)
        self._linear = linear_motion(policy) if others else None
        self.name = ""
        if self._linear is not None:
            space = ContractActions(contract=policy.contract)
            fit_remainder(self._linear, policy, space, others)
            self.linear = f"The linear map was fitted to the other {len(others)} episodes."
        else:
            why = "joints were not measured" if others else "no other episodes are in the store"
            self.linear = f"There is no linear map, since {why}."

    def add(self, planned: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Adds plans and returns the error of each, (B,)."""
        for kind, plan in joint_baselines(batch, self._linear, self._contract).items():
            self._found.add(plan, batch, kind)
        errors = self._found.add(planned, batch)
        if not errors:
            raise ValueError(
                "The actions are neither joints in rad nor targets of an arm with known "
                "kinematics, so dataset= has nothing to measure."
            )
        self.name = GRIPPERS if GRIPPERS in errors else JOINTS
        return errors[self.name].nanmean(dim=1)

    def metrics(self) -> dict[str, float]:
        """Returns the means over all windows."""
        return self._found.metrics()


class _Keyposes:
    """Errors of predicted keyposes."""

    name = "nearest_mm"
    linear = ""

    def __init__(self, policy: KeyposePolicy) -> None:
        self._found: list[dict[str, Tensor]] = []

    def add(self, planned: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Adds predictions and returns the distance of each, mm; NaN after the last event."""
        errors = keypose_errors(planned, batch)
        self._found.append(errors)
        each = torch.full((len(planned),), torch.nan)
        each[batch[f"{PREFIX}number"] != NO_EVENT] = errors[self.name]
        return each

    def metrics(self) -> dict[str, float]:
        """Returns the metrics over all windows."""
        names = self._found[0]
        return keypose_metrics(
            {name: torch.cat([one[name] for one in self._found]) for name in names}
        )


@torch.inference_mode()
def _plans(
    policy: Planner,
    windows: Windows,
    most: int | None,
    store: EpisodeStore,
    measured: _Motions | _Keyposes,
) -> list[EpisodePlans]:
    """Plans for evenly spaced windows and measures the plans."""
    count = len(windows) if most is None else min(most, len(windows))
    chosen = np.linspace(0, len(windows) - 1, count).round().astype(np.int64)
    device = next(policy.parameters()).device
    generator = torch.Generator(device).manual_seed(0)
    plans: list[Tensor] = []
    errors: list[Tensor] = []
    for first in tqdm(range(0, count, _ROWS), desc="planning", unit="batch", dynamic_ncols=True):
        arrays = windows.batch(chosen[first : first + _ROWS])
        batch = {key: torch.from_numpy(array) for key, array in arrays.items()}
        on_device = {key: value.to(device) for key, value in batch.items()}
        plans.append(policy.predict(on_device, generator).cpu())
        errors.append(measured.add(plans[-1], batch))
    planned = torch.cat(plans)
    error = torch.cat(errors).double().numpy()
    return [
        EpisodePlans(store.episode(name), windows.step[chosen[rows]], planned[rows], error[rows])
        for number, name in enumerate(windows.names)
        if len(rows := np.flatnonzero(windows.episode[chosen] == number))
    ]
