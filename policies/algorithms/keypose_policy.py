"""The keypose policy: predicts where the grippers will act next, and moves there.

Prediction: conditioning tokens with places vote for the next keypose of each arm, and a diffusion
refines each mode (`networks/keypose_head.py`). Motion: `execution/keypose_motion.py` chooses one of
them and plans to it in task space, so the plan of a session is an `ActionChunk` as that of all
policies.
Anchors: PerAct (Shridhar et al., 2022, arXiv 2209.05451) for keyposes, 3D Diffuser Actor (Ke et
al., 2024, arXiv 2402.10885) and 3D FlowMatch Actor (Gkanatsios et al., 2025, arXiv 2508.11002) for
keyposes that are denoised by attention over relative places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, settings_of, unknown_name
from stringline.datasets.contract.contract import NUMBER_KEY, Contract
from stringline.datasets.embodiments.arm_commands import arm_commands
from stringline.datasets.loading.keyposes import (
    NO_EVENT,
    PREFIX,
    Keyposes,
    episode_keyposes,
)
from stringline.datasets.loading.statistics import QUANTILES, Statistics, statistics_of
from stringline.datasets.loading.window_settings import KeyposeSettings, WindowSettings
from stringline.datasets.loading.workspace_clouds import PREFIX as CLOUD
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.vision.attention import check_heads
from stringline.policies.algorithms.keypose_augmentation import SceneAugmentation
from stringline.policies.algorithms.learned_policy import (
    Batch,
    Generators,
    LearnedPolicy,
    LearnedSession,
    PreparedObservation,
    normal,
)
from stringline.policies.execution.keypose_motion import KeyposeMotion, PredictedKeypose
from stringline.policies.execution.trajectories import MotionSettings, motion_space
from stringline.policies.networks.denoiser import EncoderOfPlaces
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.networks.keypose_head import (
    FLAGS,
    NUMBERS,
    VOTED,
    KeyposeDenoiser,
    KeyposeNoise,
    KeyposePointer,
    Votes,
    joined_votes,
    modes_of,
    rotation_of,
)
from stringline.policies.observation.interfaces import (
    ConditioningTokens,
    ObservationEncoderFactory,
)
from stringline.policies.observation.point_encoder import DRAW, PointEncoder

Refinement = Literal["diffusion", "none"]
HELD_AFTER_S = 0.2
"""Time after a closing stroke at which a gripper has stopped at what it holds, s."""
HELD_OPENINGS = "keypose/held_opening"
"""Measured openings of grippers that have closed on something: (arms,)."""
ACTING_SETS = "keypose/acting"
"""Which arms act together: (2^arms - 1,), 1 at n - 1 for the set whose arms are the bits of n."""


_NESTED: dict[str, type] = {
    "events": KeyposeSettings,
    "noise": KeyposeNoise,
    "augmentation": SceneAugmentation,
    "motion": MotionSettings,
}


@dataclass(frozen=True, kw_only=True)
class KeyposePolicySettings:
    """Settings of a `KeyposePolicy`.

    Attributes:
        observation_encoder: Factory of an encoder whose tokens have metric places.
        encoding: Factory of the encoding of places in the diffusion.
        values: Relative values in the diffusion.
        chunk: Actions per plan, T.
        events: How keyposes are found in recordings.
        refinement: diffusion: the pose of each mode is the mean of samples of a diffusion around
            it; none: the mean of its votes.
        sampling_steps: Steps of the diffusion.
        noise_samples: Noisy keyposes per example in training; at run time the pose is the mean of
            as many samples.
        noise: Noise of the poses at the first step of the diffusion.
        denoiser_depth: Blocks of the denoiser.
        heads: Its attention heads, of even size; if None, 3 if they divide the width of the tokens,
            else 4.
        voxel_samples: Random samples of voxels per observation at run time, whose votes are joined.
        modes: Number of modes that are predicted; a mode that was missed twice is left for another.
        vote_m: Distance within which votes are one mode, m.
        label_m: In training, tokens within about this distance of the keypose answer for it, m.
        augmentation: Changes of scene and targets in training.
        motion: How the arms move to a keypose.

    Other Args:
        normalisation: None, the only allowed value; other policies have it.
    """

    observation_encoder: ObservationEncoderFactory
    encoding: EncodingFactory
    values: bool = True
    chunk: int = 48
    events: KeyposeSettings = field(default_factory=KeyposeSettings)
    refinement: Refinement = "diffusion"
    sampling_steps: int = 3
    noise_samples: int = 4
    noise: KeyposeNoise = field(default_factory=KeyposeNoise)
    denoiser_depth: int = 1
    heads: int | None = None
    voxel_samples: int = 4
    modes: int = 3
    vote_m: float = 0.03
    label_m: float = 0.015
    augmentation: SceneAugmentation = field(default_factory=SceneAugmentation)
    motion: MotionSettings = field(default_factory=MotionSettings)
    normalisation: object = None

    def __post_init__(self) -> None:
        if self.normalisation is not None:
            raise ValueError(
                "policy=keyposes has no ranges to normalise by, since its numbers are metres; set "
                "normalisation=none, or take training_recipe=keyposes, which sets all that fits."
            )
        for name, kind in _NESTED.items():
            object.__setattr__(self, name, settings_of(kind, getattr(self, name), name))
        COUNT.check(
            chunk=self.chunk,
            sampling_steps=self.sampling_steps,
            noise_samples=self.noise_samples,
            denoiser_depth=self.denoiser_depth,
            voxel_samples=self.voxel_samples,
            modes=self.modes,
        )
        POSITIVE.check(vote_m=self.vote_m, label_m=self.label_m)
        if self.refinement not in get_args(Refinement):
            raise unknown_name("refinement", str(self.refinement), get_args(Refinement))

    def with_action_statistics(
        self,
        statistics: Statistics,
        contract: Contract,
        episodes: Sequence[StoredEpisode],
        slots: Sequence[Mapping[str, str]] | None,
        cameras: Sequence[str] | None,
    ) -> Statistics:
        """Adds the statistics of keyposes; see `PolicySettings.with_action_statistics`."""
        keyposes = [episode_keyposes(each, self.events) for each in episodes]
        openings = [held_openings(*each) for each in zip(episodes, keyposes, strict=True)]
        sets = [acting_sets(each.acting) for each in keyposes]
        added = {
            HELD_OPENINGS: statistics_of(lambda: iter(openings)),
            ACTING_SETS: statistics_of(lambda: iter(sets)),
        }
        return Statistics({**statistics, **added}, instructions=statistics.instructions)


class KeyposePolicy(LearnedPolicy):
    """Predicts the next keypose of each arm and moves there.

    Attributes:
        commands: What its actions command.
        events: How keyposes are found in recordings.
    """

    def __init__(
        self, settings: KeyposePolicySettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the policy.

        Raises:
            ValueError: The actions have no meaning for keyposes, see `arm_commands`, or the tokens
                of the encoder have no metric places in the base frame.
        """
        commands = arm_commands(contract)
        super().__init__(settings.observation_encoder, contract, statistics)
        self.commands = commands
        self.settings = settings
        self.chunk = settings.chunk
        self.events = settings.events
        encoder = self.observation_encoder
        if not isinstance(encoder, EncoderOfPlaces):
            raise ValueError(
                f"policy=keyposes needs tokens with places; got {type(encoder).__name__}; allowed: "
                "policy/observation_encoder=points or places."
            )
        heads = settings.heads or (3 if encoder.dim % 6 == 0 else 4)
        check_heads(encoder.dim, heads)
        encoding = encoder.encoding_of_places(
            settings.encoding, heads=heads, head_dim=encoder.dim // heads
        )
        if encoding.axes != 3:
            raise ValueError(
                f"policy=keyposes needs places in the base frame; got {encoding.axes} coordinates "
                "per token; allowed: frames=base with history=none."
            )
        self.pointer = KeyposePointer(encoder.dim)
        self.denoiser = (
            KeyposeDenoiser(
                encoder.dim,
                encoding,
                arms=len(contract.arms),
                depth=settings.denoiser_depth,
                values=settings.values,
            )
            if settings.refinement == "diffusion"
            else None
        )
        self.register_buffer("roots", torch.tensor(commands.roots).float(), persistent=False)
        if settings.augmentation.mirror and len(contract.arms) != 2:
            raise ValueError(
                f"augmentation.mirror exchanges two arms; {contract.embodiment} has "
                f"{len(contract.arms)}. Set augmentation.mirror=false."
            )
        if settings.augmentation.mirror and not isinstance(encoder, PointEncoder):
            raise ValueError(
                "augmentation.mirror needs policy/observation_encoder=points: images cannot be "
                "mirrored with their geometry."
            )

    roots: Tensor

    def window_settings(self) -> WindowSettings:
        """Returns what the windows of its training contain."""
        encoder = self.observation_encoder
        clouds = encoder.maker if isinstance(encoder, PointEncoder) else None
        return replace(super().window_settings(), chunk=1, events=self.events, clouds=clouds)

    def loss_weight(self, batch: Batch) -> Tensor:
        """Returns the number of examples."""
        return torch.tensor(float(len(batch[f"{PREFIX}number"])))

    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows.

        Args:
            batch: The keys of the observation encoder, and `keypose/*` (`Keyposes.targets`).
        """
        return sum(self.losses(batch).values(), torch.zeros((), device=self.roots.device))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the parts of the loss by name; their weights are included."""
        if self.training:
            batch = self.settings.augmentation(
                batch, self.contract.arms, self.roots, self.commands.openings
            )
        conditioning = self._conditioning(batch)
        target = _Target.of(batch, self.contract.arms)
        votes = self.pointer(conditioning, target.turn)
        parts = _vote_losses(votes, target, self.settings.label_m) | _flag_losses(votes, target)
        if self.denoiser is not None:
            parts["denoised"] = self._denoising_loss(self.denoiser, conditioning, votes, target)
        return parts

    def _conditioning(self, batch: Batch) -> ConditioningTokens:
        conditioning: ConditioningTokens = self.observation_encoder(batch)
        if conditioning.places is None or not conditioning.arms:
            raise ValueError(
                "policy=keyposes needs tokens of the arms and metric places; allowed: "
                "policy/observation_encoder=points, or places with coordinates=metric or rays."
            )
        return conditioning

    def _denoising_loss(
        self,
        denoiser: KeyposeDenoiser,
        conditioning: ConditioningTokens,
        votes: Votes,
        target: "_Target",
    ) -> Tensor:
        """Returns the error of clean keyposes that are predicted from noisy ones."""
        clean = target.numbers[:, :, None].expand(-1, -1, self.settings.noise_samples, -1)
        level = torch.rand(clean.shape[:3], device=clean.device)
        noisy = self.settings.noise.add(clean, level, torch.randn_like(clean[..., :9]))
        found = denoiser(
            noisy, level, votes.query, denoiser.precompute(conditioning), votes.present
        )
        error = _weighted_errors(found - clean).mean(dim=2)
        return (error * target.weight).sum() / target.weight.sum().clamp(min=1)

    @torch.inference_mode()
    def predict(
        self, batch: Batch, generator: Generators, prefix: NormalisedPrefix | None = None
    ) -> Tensor:
        """Returns predictions (B, A, M, VOTED + FLAGS + 1): see `keypose_of`.

        Args:
            batch: The keys of the observation encoder, with a batch axis.
            generator: The only source of random numbers, or one for each observation.
            prefix: Unused: the motion keeps to prefixes, not the prediction.
        """
        settings = self.settings
        voxel_samples = (
            settings.voxel_samples if isinstance(self.observation_encoder, PointEncoder) else 1
        )
        rows = len(batch["joints/position"])
        conditioning = self._conditioning(self._drawn(batch, voxel_samples))
        each = self.pointer(conditioning)
        votes = joined_votes(each, voxel_samples)
        numbers, share = modes_of(votes, settings.modes, settings.vote_m)
        if self.denoiser is not None:
            samples = settings.noise_samples
            shape = (rows, voxel_samples * samples, *numbers.shape[1:3], 9)
            noise = normal(shape, generator, numbers.device)
            refined = self._refined(
                self.denoiser, numbers, noise, conditioning, each, voxel_samples
            )
            numbers = torch.cat((refined, numbers[..., NUMBERS:]), dim=-1)
        flags = votes.flags[:, :, None].expand(-1, -1, settings.modes, -1)
        return torch.cat((numbers, flags, share[..., None]), dim=-1)

    def _drawn(self, batch: Batch, voxel_samples: int) -> Batch:
        """Returns a batch in which each observation stands once for each draw of voxels."""
        if voxel_samples == 1 or not isinstance(self.observation_encoder, PointEncoder):
            return batch
        full = self.observation_encoder.with_clouds(batch)
        kinds = (CLOUD, "T_base_gripper/", "T_base_root/", "joints/position", NUMBER_KEY)
        needed = [key for key in full if key.startswith(kinds)]
        repeated = {key: full[key].repeat_interleave(voxel_samples, dim=0) for key in needed}
        rows = len(full["joints/position"])
        device = repeated["joints/position"].device
        return repeated | {DRAW: torch.arange(voxel_samples, device=device).repeat(rows)}

    def _refined(
        self,
        denoiser: KeyposeDenoiser,
        modes: Tensor,
        noise: Tensor,
        conditioning: ConditioningTokens,
        votes: Votes,
        voxel_samples: int,
    ) -> Tensor:
        """Returns modes (B, A, M, NUMBERS) after the diffusion around each.

        Deterministic steps of DDIM (Song et al., 2021, equation 12 with eta = 0) for a noise that
        grows linearly. The mean over all samples is returned.
        """
        batch, arms, count, _ = modes.shape
        samples = noise.shape[1] // voxel_samples
        # Rows of the conditioning are (B D); their keyposes are (M S).
        start = modes[:, None, :, :, None].expand(-1, voxel_samples, -1, -1, samples, -1)
        start = start.reshape(batch * voxel_samples, arms, count * samples, -1)
        noise = noise.reshape(batch, voxel_samples, samples, arms, count, 9).permute(
            0, 1, 3, 4, 2, 5
        )
        noise = noise.reshape(batch * voxel_samples, arms, count * samples, 9)
        context = denoiser.precompute(conditioning)
        ones = torch.ones(start.shape[:3], device=start.device)
        noisy = self.settings.noise.add(start, ones, noise)
        steps = self.settings.sampling_steps
        clean = start
        for step in range(steps):
            level = 1 - step / steps
            after = 1 - (step + 1) / steps
            clean = denoiser(noisy, level * ones, votes.query, context, votes.present)
            noisy = clean[..., :9] + (after / level) * (noisy - clean[..., :9])
        shaped = clean.reshape(batch, voxel_samples, arms, count, samples, NUMBERS)
        return shaped.mean(dim=(1, 4))

    def session(self, seed: int) -> "KeyposeSession":
        """Starts an episode; see `stringline.Policy`."""
        return KeyposeSession(self, seed)


def keypose_of(row: NDArray[np.float32]) -> PredictedKeypose:
    """Returns the prediction of one row (A, M, VOTED + FLAGS + 1) of `KeyposePolicy.predict`."""
    numbers = row[..., :VOTED].astype(np.float64)
    flags = row[:, 0, VOTED : VOTED + FLAGS].astype(np.float64)
    pose = np.zeros((*numbers.shape[:2], 4, 4))
    pose[..., :3, :3] = rotation_of(torch.from_numpy(numbers[..., 3:9])).numpy()
    pose[..., :3, 3] = numbers[..., :3]
    pose[..., 3, 3] = 1.0
    ways = [numbers[..., :3] + numbers[..., first : first + 3] for first in (9, 12, 15)]
    chances = 1 / (1 + np.exp(-flags))
    return PredictedKeypose(
        pose=pose,
        approach=ways[0],
        corner=ways[1],
        departure=ways[2],
        share=row[..., -1].astype(np.float64),
        acts=chances[:, 0],
        moves=chances[:, 1],
        before=numbers[..., NUMBERS],
        after=numbers[..., NUMBERS + 1],
    )


def acting_sets(acting: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns which arms act in K keyposes (K, arms), as in `ACTING_SETS`."""
    arms = acting.shape[1]
    number = (acting << np.arange(arms)).sum(axis=1)
    return np.eye(2**arms)[number, 1:]


def with_known_set(prediction: PredictedKeypose, known: NDArray[np.bool_]) -> PredictedKeypose:
    """Returns a prediction in which the arms that act are the likeliest set that training had.

    Arms decide separately whether they act, and between two of them, of which one or the other
    would do, both can seem likelier than not.

    Args:
        prediction: The prediction.
        known: (2^arms - 1,) the sets of `ACTING_SETS` in the training data.
    """
    arms = len(prediction.acts)
    likely = prediction.acts > 0.5
    sets = (np.arange(1, 2**arms)[:, None] >> np.arange(arms)) % 2 == 1
    if not likely.any() or known[(likely << np.arange(arms)).sum() - 1] or not known.any():
        return prediction
    chance = np.where(sets, prediction.acts, 1 - prediction.acts).prod(axis=1)
    best = sets[np.where(known, chance, -1.0).argmax()]
    acts = np.where(best, np.maximum(prediction.acts, 0.51), np.minimum(prediction.acts, 0.49))
    moves = np.where(likely & ~best, 0.0, np.where(best, 1.0, prediction.moves))
    return replace(prediction, acts=acts, moves=moves)


class KeyposeSession(LearnedSession):
    """One episode of a keypose policy; its motion keeps the last targets during a prefix."""

    def __init__(self, policy: KeyposePolicy, seed: int) -> None:
        """Starts the episode."""
        super().__init__(policy, seed)
        arms = len(policy.contract.arms)
        known = policy.statistics.get(HELD_OPENINGS)
        # The lowest tenth may be grasps that failed and were repeated.
        held = np.zeros(arms) if known is None else known.quantiles[QUANTILES.index(0.1)]
        held = np.where(held < 1.0 - 1e-3, held, 0.0)
        sets = policy.statistics.get(ACTING_SETS)
        self._known_sets = np.ones(2**arms - 1, bool) if sets is None else sets.max > 0
        self.space = motion_space(policy.commands)
        self.motion = KeyposeMotion(
            self.space, policy.contract.control_hz, policy.settings.motion, held.tolist()
        )

    def wants_prediction(self, time: float) -> bool:
        """Returns whether a prediction could change the motion."""
        return self.motion.wants_prediction(time)

    def actions(
        self, prepared: PreparedObservation, prediction: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Returns the actions (T, A) of the motion to a prediction; None if the motion goes on."""
        time = prepared.time
        fixed = 0 if prepared.kept is None else int((prepared.kept.weight == 1).sum())
        step = float(time[1] - time[0]) if len(time) > 1 else 0.0
        measured = self.space.measured(prepared.observation)
        targets = self.motion.targets(
            float(time[0]),
            len(time),
            measured,
            None
            if prediction is None
            else with_known_set(keypose_of(prediction), self._known_sets),
            fixed_s=fixed * step,
        )
        return self.space.actions(targets, measured).astype(np.float32)


@dataclass(frozen=True)
class _Target:
    """Training targets: numbers (B, A, NUMBERS), rotations (B, A, 3, 3) and flags of each arm."""

    numbers: Tensor
    turn: Tensor
    acts: Tensor
    moves: Tensor
    before: Tensor
    after: Tensor

    @property
    def weight(self) -> Tensor:
        """(B, A): the pose counts of arms that move or act."""
        return self.moves

    @classmethod
    def of(cls, batch: Batch, arms: tuple[str, ...]) -> "_Target":
        """Reads the targets of a batch; an arm moves if it will be elsewhere, or acts."""
        pose = batch[f"{PREFIX}pose"]
        position = pose[..., :3, 3]
        turn = pose[..., :3, :3]
        six = turn[..., :2].transpose(-1, -2).flatten(-2)
        ways = [
            batch[f"{PREFIX}{name}"][..., :3, 3] - position
            for name in ("approach", "corner", "departure")
        ]
        grippers = torch.stack([batch[f"T_base_gripper/{arm}"] for arm in arms], dim=1)
        event = (batch[f"{PREFIX}number"] != NO_EVENT)[:, None]
        acts = (batch[f"{PREFIX}acting"] & event).to(pose.dtype)
        far = (grippers[..., :3, 3].to(pose.dtype) - position).norm(dim=-1) > 0.02
        moves = torch.maximum(acts, (far & event).to(pose.dtype))
        numbers = torch.cat((position, six, *ways), dim=-1)
        openings = (batch[f"{PREFIX}{name}"] for name in ("before", "after"))
        return cls(numbers, turn, acts, moves, *openings)


def _weighted_errors(error: Tensor) -> Tensor:
    """Returns the weighted sums (...) of the absolute errors (..., NUMBERS)."""
    size = error.abs()
    return 20 * size[..., :3].sum(-1) + size[..., 3:9].sum(-1) + 5 * size[..., 9:].sum(-1)


def _vote_losses(votes: Votes, target: _Target, label_m: float) -> dict[str, Tensor]:
    """Returns the losses of weights and of votes: tokens near the keypose answer for it."""
    away = (votes.place[:, None] - target.numbers[:, :, None, :3]).norm(dim=-1)
    away = away.masked_fill(~votes.present[:, None], 9.0)
    label = (-away / label_m).softmax(-1)
    total = target.weight.sum().clamp(min=1)
    chosen = -(label * votes.logit.log_softmax(-1)).sum(-1)
    error = votes.numbers[..., :NUMBERS] - target.numbers[:, :, None]
    error = (_weighted_errors(error) * label).sum(-1)
    openings = torch.stack((target.before, target.after), dim=-1)
    off = (votes.numbers[..., NUMBERS:] - openings[:, :, None]).abs().sum(-1)
    off = (off * label).sum(-1)
    return {
        "pointed": 0.3 * (chosen * target.weight).sum() / total,
        "voted": (error * target.weight).sum() / total,
        "openings": 2 * (off * target.acts).sum() / target.acts.sum().clamp(min=1),
    }


def _flag_losses(votes: Votes, target: _Target) -> dict[str, Tensor]:
    """Returns the losses of which arms act and move."""
    entropy = functional.binary_cross_entropy_with_logits
    return {
        "acts": entropy(votes.flags[..., 0], target.acts),
        "moves": entropy(votes.flags[..., 1], target.moves),
    }


def held_openings(episode: StoredEpisode, keyposes: Keyposes) -> NDArray[np.float64]:
    """Returns the measured openings (K, arms) of grippers at the end of closing strokes.

    Where an arm does not close in a keypose, its row repeats the median of its closings; 1 if it
    never closes in the episode.
    """
    contract = episode.attributes.contract
    openings = arm_commands(contract).openings
    measured = np.asarray(episode.arrays["joints/position"], np.float64)
    rows = np.ones((max(len(keyposes), 1), len(contract.arms)))
    settled = round(HELD_AFTER_S * contract.control_hz)
    for arm, name in enumerate(contract.arms):
        if name not in openings:
            continue
        closes = keyposes.acting[:, arm] & (keyposes.after[:, arm] < keyposes.before[:, arm] - 0.02)
        steps = np.minimum(keyposes.end[closes] + settled, len(measured) - 1)
        if len(steps):
            found = measured[steps, openings[name]]
            rows[:, arm] = np.median(found)
            rows[closes, arm] = found
    return rows
