"""The observation encoder: tokens of cameras and grippers, fused by attention.

`TokenFrames` has the frames in which the tokens have coordinates, and encodings of these.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import NUMBER_KEY, Camera, Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.coordinates.coordinates import (
    Coordinates,
    Frames,
    MetricPlaces,
    are_metric,
    directions_in_frames,
    in_frames,
    vectors_in_frames,
)
from stringline.encoders.positions.composite import DividedHeads, divided, with_time
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.vision.attention import PositionalAttention
from stringline.encoders.vision.rgbd import ImageTokens, RgbdTokens, Tokens, read_key
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.networks.inputs import TokenPlaces
from stringline.policies.observation.interfaces import (
    AttentionMap,
    ConditioningTokens,
    Instruction,
    ObservationHistory,
)
from stringline.policies.observation.normaliser import JointState
from stringline.policies.observation.observation_settings import ObservationSettings


class TokenFrames:
    """The frames of an observation encoder.

    Attributes:
        metric: Whether coordinates are metres in the base frame, before the choice of frames.
    """

    def __init__(
        self,
        frames: Frames | None,
        coordinates: Coordinates,
        arms: tuple[str, ...],
        history: ObservationHistory | None,
    ) -> None:
        """Resolves the frames.

        Args:
            frames: The frames; if None, the coordinates as they are.
            coordinates: The choice of coordinates.
            arms: The arms of the contract.
            history: The past observations to read; if None, tokens have no time.
        """
        self.metric = are_metric(coordinates)
        if frames is not None and not self.metric:
            raise ValueError(
                f"Frames of {type(coordinates).__name__}; allowed: coordinates in metres in the "
                f"base frame, such as MetricPlaces."
            )
        self.arms = arms
        self._frames = (None,) if frames is None else frames.arms(arms)
        self._by_heads = frames is not None and frames.by == "heads"
        self._axes = coordinates.axes
        self._wavelengths_s = None if history is None else history.wavelengths_s

    def encoding(self, factory: EncodingFactory, *, heads: int, head_dim: int) -> PositionEncoding:
        """Returns an encoding of the coordinates of the tokens in all frames, and of their time."""
        if not self._by_heads:
            axes = self._axes * len(self._frames)
            return self._timed(factory(heads=heads, head_dim=head_dim, axes=axes))
        parts = divided(
            factory, heads=heads, head_dim=head_dim, axes=self._axes, groups=len(self._frames)
        )
        return DividedHeads(
            [self._timed(part) for part in parts], common=int(self._wavelengths_s is not None)
        )

    def framed(self, tokens: Tokens, observation: Mapping[str, Tensor]) -> Tokens:
        """Returns tokens with their coordinates, in the base frame, in all frames; time stays."""
        if self._frames == (None,):
            return tokens
        space = tokens.coordinates[..., : self._axes]
        time = tokens.coordinates[..., self._axes :]
        poses = self._poses(observation)
        coordinates = torch.cat((in_frames(space, poses), time), dim=-1)
        spread = tokens.spread
        if spread is not None:
            turned = vectors_in_frames(spread[..., : self._axes], poses)
            spread = torch.cat((turned, spread[..., self._axes :]), dim=-1)
        return replace(tokens, coordinates=coordinates, spread=spread)

    def places(self, tokens: Tokens, observation: Mapping[str, Tensor]) -> TokenPlaces | None:
        """Returns the places of framed tokens and of the grippers; None if they are not metric."""
        if not self.metric:
            return None
        dtype = tokens.coordinates.dtype
        poses = self._poses(observation)
        measured = torch.stack(
            [read_key(observation, f"T_base_gripper/{arm}").to(dtype) for arm in self.arms], dim=1
        )
        grippers = in_frames(measured[..., :3, 3], poses)
        directions = directions_in_frames(measured[..., :3, :3], poses)
        time = tokens.coordinates.shape[-1] - grippers.shape[-1]  # 0 or 1 axes: now is 0.
        present = tokens.present
        return TokenPlaces(
            coordinates=tokens.coordinates,
            has_position=tokens.has_position if present is None else tokens.has_position & present,
            grippers=torch.nn.functional.pad(grippers, (0, time)),
            directions=torch.nn.functional.pad(directions, (0, 0, 0, time)),
            spread=tokens.spread,
        )

    def _poses(self, observation: Mapping[str, Tensor]) -> list[Tensor | None]:
        return [
            None if arm is None else read_key(observation, f"T_base_gripper/{arm}")
            for arm in self._frames
        ]

    def _timed(self, encoding: PositionEncoding) -> PositionEncoding:
        return encoding if self._wavelengths_s is None else with_time(encoding, self._wavelengths_s)


class ObservationEncoder(nn.Module):
    """Fuses images and proprioception by attention between tokens with positions.

    Patches are put at their back-projected depth, the token of each arm at the TCP of its gripper,
    from the kinematics. Joint positions of the whole embodiment are in the token of each arm, or,
    with velocities, beside the tokens (`ObservationSettings.joints`). Positions are in the base
    frame, or in the present frames of the grippers (`Frames`). With a history, time in seconds from
    now is a further axis, and past tokens have the positions of that time and the joints. An
    instruction has no position.

    Attributes:
        history: The past observations that it reads; if None, only the present.
        instruction: Its encoder of instructions; if None, it needs no instruction.
        state_dim: Numbers of the state beside the tokens, with its mark; 0: there is none.
    """

    def __init__(
        self, settings: ObservationSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the encoder.

        Args:
            settings: Settings of the encoder.
            contract: Contract of the observations.
            statistics: Statistics of the joints, and the known instructions.

        Raises:
            ValueError: A camera or a frame does not exist, there are no arms or joints, the
                encoding does not support time, or there are no instructions.
        """
        super().__init__()
        if not contract.arms or not contract.joints:
            raise ValueError(
                "This observation encoder needs joint positions and gripper poses; the contract "
                "has no arms or no joints."
            )
        self.cameras = settings.choose(contract)
        if not self.cameras:
            raise ValueError(
                "ObservationEncoder reads no camera; policy.observation_encoder.cameras allows: at "
                "least one camera, or null for all of the data."
            )
        self.arms = contract.arms
        self.dim = dim = settings.dim
        self.joint_range = settings.normalisation(statistics["joints/position"])
        self.tokenise = _image_tokens(settings, self.cameras)
        self.joint_dropout = settings.joint_dropout
        self.joint_state = JointState(statistics) if settings.joints == "condition" else None
        self.state_dim = 0 if self.joint_state is None else self.joint_state.dim + 1
        self.embed_joints = (
            nn.Linear(len(contract.joints), dim)
            if self.joint_state is None or settings.history is not None
            else None
        )
        self.arm_mark = nn.Parameter(0.02 * torch.randn(len(self.arms), dim))
        self.history = settings.history
        self.frames = TokenFrames(settings.frames, settings.coordinates, self.arms, self.history)
        places = self._encoding(settings, contract)
        factory = settings.instruction
        self.instruction: Instruction | None = (
            None if factory is None else factory(dim=dim, known=statistics.instructions)
        )
        self.blocks = VisionTransformer(
            places,
            dim,
            settings.depth,
            values=settings.values,
            share_layers=settings.share_layers,
            registers=settings.registers,
        )

    def _encoding(self, settings: ObservationSettings, contract: Contract) -> PositionEncoding:
        """Returns the encoding of positions, extended by time if there is a history."""
        heads = settings.heads
        dim = settings.dim
        places = self.frames.encoding(settings.encoding, heads=heads, head_dim=dim // heads)
        if self.history is not None:
            self.history.steps(contract.control_hz)
            self.past_mark = nn.Parameter(0.02 * torch.randn(len(self.history.ages_s), dim))
        return places

    def encoding_of_places(
        self, factory: EncodingFactory, *, heads: int, head_dim: int
    ) -> PositionEncoding:
        """Returns a new encoding of the coordinates of its tokens; see `EncoderOfPlaces`."""
        if not self.frames.metric:
            raise ValueError(
                f"Tokens have {type(self.tokenise.coordinates).__name__}; allowed for networks "
                f"that read them by their places: metres in the base frame, such as MetricPlaces."
            )
        return self.frames.encoding(factory, heads=heads, head_dim=head_dim)

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads from the present observation."""
        state: Sequence[str] = () if self.joint_state is None else self.joint_state.keys
        now = [*self._images, *self._state, *state, *(["time"] if self.history else [])]
        return list(dict.fromkeys(now))

    @property
    def past_keys(self) -> list[str]:
        """The keys of the contract that `forward` reads from each past observation."""
        if self.history is None:
            return []
        return [*(self._images if self.history.images else []), *self._state, "time"]

    @property
    def _images(self) -> list[str]:
        return [
            f"{kind}/{camera.name}"
            for camera in self.cameras
            for kind, present in {
                "rgb": True,
                "depth": camera.depth is not None,
                "intrinsics": camera.has_geometry,
                "T_base_camera": camera.has_geometry,
            }.items()
            if present
        ]

    @property
    def _state(self) -> list[str]:
        poses = [f"T_base_gripper/{arm}" for arm in self.arms]
        return ["joints/position", *poses]

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch.

        Args:
            observation: At least `keys`, with a leading batch axis. `present/<camera>` (B,) bool
                marks examples that have a camera, see `RgbdTokens`. With a history also
                `past/<key>` (B, K, ...) for each of `past_keys` and `past_mask` (B, K) bool, as
                from `Windows`; with an instruction `instruction_number` (B,).
        """
        images = self._timed(self.tokenise(observation))
        shown = self._shown(observation["joints/position"])
        arms = self._timed(self._arm_tokens(observation, shown, joints=self.joint_state is None))
        past_images, past_arms = self._past(observation, shown)
        others = [*past_arms, *self._instruction_tokens(observation, arms), arms]
        tokens = self.frames.framed(reduce(add, [images, *past_images, *others]), observation)
        encoded = self.blocks(
            tokens.features,
            tokens.coordinates,
            tokens.has_position,
            tokens.present,
            spread=tokens.spread,
        )
        fused = self._fused(
            replace(tokens, features=encoded), sum(part.features.shape[1] for part in others)
        )
        return ConditioningTokens(
            fused.features,
            fused.present,
            self.frames.places(fused, observation),
            state=self._joint_state(observation, shown),
            arms=len(self.arms),
        )

    @torch.inference_mode()
    def attention_map(self, observation: Mapping[str, Tensor]) -> AttentionMap:
        """Traces the attention of the arms' tokens back to the patches, for a batch of one.

        Attention rollout (Abnar and Zuidema, 2020, arXiv 2005.00928): the product over all blocks
        of (A + I) / 2, A the mean over the heads, which includes what tokens have gathered in
        earlier blocks. It shows where information can come from, not its use.
        """
        with _recorded(self.blocks) as blocks:
            self(observation)
        rollout: Tensor | None = None
        for weights in blocks:
            mean = weights.mean(dim=1)[0]
            mixed = (mean + torch.eye(len(mean), device=mean.device)) / 2
            rollout = mixed if rollout is None else mixed @ rollout
        assert rollout is not None
        points, colours, has_position, sizes = _patches(self, observation)
        streams = self.tokenise.fusion.streams
        first = 0 if self.blocks.registers is None else len(self.blocks.registers)
        arms = rollout[-len(self.arms) :, first : first + streams * len(has_position)]
        shares = arms.reshape(len(arms), streams, -1).sum(dim=1)
        return AttentionMap(
            points[has_position].cpu().numpy().astype(np.float32),
            colours[has_position].round().to(torch.uint8).cpu().numpy(),
            shares[:, has_position].float().cpu().numpy(),
            tuple(self.arms),
            _images(sizes, self.tokenise.prefix, shares),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"arm_mark"} | (set() if self.history is None else {"past_mark"})

    def _joint_state(
        self, observation: Mapping[str, Tensor], shown: Tensor | None
    ) -> Tensor | None:
        """Returns the state beside the tokens, (B, S); its last number marks hidden examples."""
        if self.joint_state is None:
            return None
        state: Tensor = self.joint_state(observation)
        if shown is None:
            return nn.functional.pad(state, (0, 1))
        seen = shown.to(state.dtype)
        return torch.cat((state * seen, 1 - seen), dim=-1)

    def _arm_tokens(
        self, observation: Mapping[str, Tensor], shown: Tensor | None, *, joints: bool = True
    ) -> Tokens:
        """Returns a token per arm; joints are hidden in examples not `shown` (B, 1) bool."""
        measured = self.joint_range.normalise(observation["joints/position"].float())
        if joints and self.embed_joints is not None:
            features = self.embed_joints(measured)
        else:
            features = self.arm_mark.new_zeros(len(measured), self.dim)
        if shown is not None:
            features = features * shown.to(features.dtype)
        positions = torch.stack(
            [observation[f"T_base_gripper/{arm}"][:, :3, 3] for arm in self.arms], dim=1
        )
        return Tokens(
            features[:, None] + self.arm_mark, *self.tokenise.coordinates.points(positions)
        )

    def _shown(self, joints: Tensor) -> Tensor | None:
        """Draws the examples whose joint state is visible in training, (B, 1) bool; None: all."""
        if not self.training or not self.joint_dropout:
            return None
        return torch.rand(len(joints), 1, device=joints.device) >= self.joint_dropout

    def _past(
        self, observation: Mapping[str, Tensor], shown: Tensor | None
    ) -> tuple[list[Tokens], list[Tokens]]:
        """Returns the past tokens of images and of arms, one time after the other."""
        if self.history is None:
            return [], []
        known, ago = self._moments(observation)
        flat = {key: read_key(observation, f"past/{key}").flatten(0, 1) for key in self.past_keys}
        for key in (f"present/{camera.name}" for camera in self.cameras):
            if key in observation:
                flat[key] = observation[key].repeat_interleave(known.shape[1])
        shown = None if shown is None else shown.repeat_interleave(known.shape[1], dim=0)
        arms = self._in_their_time(self._arm_tokens(flat, shown), known, ago)
        if not self.history.images:
            return [], [arms]
        return [self._in_their_time(self.tokenise(flat), known, ago)], [arms]

    def _moments(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns the existence (B, K) bool and times (B, K), s from now, of past observations."""
        assert self.history is not None  # Checked by the caller.
        known = read_key(observation, "past_mask")
        if self.training and self.history.dropout:
            known = known & (torch.rand(len(known), 1, device=known.device) >= self.history.dropout)
        return known, read_key(observation, "past/time") - read_key(observation, "time")[:, None]

    def _in_their_time(self, tokens: Tokens, known: Tensor, ago: Tensor) -> Tokens:
        """Returns tokens (B K, n) of K past times as (B, K n), with marks, times and presence."""
        count = tokens.features.shape[1]
        batch = len(known)
        features = tokens.features.reshape(*known.shape, count, -1) + self.past_mark[:, None]
        present = known.repeat_interleave(count, dim=1)
        if tokens.present is not None:
            present = present & tokens.present.reshape(batch, -1)
        coordinates = tokens.coordinates.reshape(batch, present.shape[1], -1)
        spread = None if tokens.spread is None else tokens.spread.reshape(coordinates.shape)
        has_position = tokens.has_position.reshape(batch, -1)
        joined = Tokens(features.flatten(1, 2), coordinates, has_position, present, spread)
        return self._timed(joined, ago.repeat_interleave(count, dim=1))

    def _timed(self, tokens: Tokens, seconds: Tensor | None = None) -> Tokens:
        """Appends the time (B, N), seconds from now, to the coordinates of tokens; if None, now."""
        if self.history is None:
            return tokens
        place = tokens.coordinates
        time = (
            torch.zeros_like(place[..., :1])
            if seconds is None
            else seconds[..., None].to(place.dtype)
        )
        spread = None if tokens.spread is None else nn.functional.pad(tokens.spread, (0, 1))
        return replace(tokens, coordinates=torch.cat((place, time), dim=-1), spread=spread)

    def _instruction_tokens(self, observation: Mapping[str, Tensor], like: Tokens) -> list[Tokens]:
        """Returns the token of the instruction, without a position and of now."""
        if self.instruction is None:
            return []
        features, present = self.instruction(read_key(observation, NUMBER_KEY))
        no_position = torch.zeros_like(like.coordinates[:, :1])
        return [Tokens(features, no_position, torch.zeros_like(present), present)]

    def _fused(self, tokens: Tokens, others: int) -> Tokens:
        """Joins the streams of the images of each time; `others` tokens follow them."""
        streams = self.tokenise.fusion.streams
        if streams == 1:
            return tokens
        moments = 1 + (
            len(self.history.ages_s) if self.history is not None and self.history.images else 0
        )
        encoded = tokens.features
        batch = len(encoded)
        own = encoded.shape[1] - others
        images = self.tokenise.fusion(encoded[:, :own].reshape(batch * moments, own // moments, -1))

        def of_first(each: Tensor) -> Tensor:
            """Returns values (B, N, ...) without those of the other streams, which are equal."""
            parts = each[:, :own].reshape(batch, moments, streams, -1, *each.shape[2:])
            return torch.cat((parts[:, :, 0].flatten(1, 2), each[:, own:]), dim=1)

        return Tokens(
            torch.cat((images.reshape(batch, own // streams, -1), encoded[:, own:]), dim=1),
            of_first(tokens.coordinates),
            of_first(tokens.has_position),
            None if tokens.present is None else of_first(tokens.present),
            None if tokens.spread is None else of_first(tokens.spread),
        )


def _image_tokens(settings: ObservationSettings, cameras: Sequence[Camera]) -> ImageTokens:
    """Builds the tokens of images."""
    if settings.images is not None:
        return settings.images(
            cameras,
            coordinates=settings.coordinates,
            encoding=settings.encoding,
            dim=settings.dim,
        )
    return RgbdTokens(
        cameras,
        settings.coordinates,
        settings.dim,
        depth=settings.depth_input,
        embedding=settings.embedding,
        learned_places=settings.learned_places,
    )


@contextmanager
def _recorded(blocks: nn.Module) -> Iterator[list[Tensor]]:
    """Records the weights (B, heads, N, N) of every attention of a module while it is called."""
    found: list[Tensor] = []

    def note(attention: PositionalAttention, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.append(attention.weights(given[0], given[1], present=named.get("present")))

    layers = [layer for layer in blocks.modules() if isinstance(layer, PositionalAttention)]
    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _images(
    sizes: Mapping[str, tuple[int, int]], prefix: int, shares: Tensor
) -> dict[str, NDArray[np.float32]]:
    """Returns the shares (arms, P) as images by camera, given their rows and columns."""
    found: dict[str, NDArray[np.float32]] = {}
    first = 0
    for camera, (rows, columns) in sizes.items():
        first += prefix
        image = shares[:, first : first + rows * columns].reshape(-1, rows, columns)
        found[camera] = image.float().cpu().numpy()
        first += rows * columns
    return found


def _patches(
    encoder: ObservationEncoder, batch: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor, dict[str, tuple[int, int]]]:
    """Returns points (P, 3), colours (P, 3) and existence of positions (P,) of all patches.

    The last item is the number of rows and columns of patches by camera.
    """
    places = MetricPlaces()
    tokenise = encoder.tokenise
    patch = tokenise.patch
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    sizes: dict[str, tuple[int, int]] = {}
    for camera in tokenise.cameras:
        images, view = tokenise.view(batch, camera, places.reads)
        points, has_position = places.patches(view, patch, 1, images.device)
        colours = nn.functional.avg_pool2d(images[0].permute(2, 0, 1).float(), patch).flatten(1).T
        sizes[camera.name] = (images.shape[1] // patch, images.shape[2] // patch)
        first = (0, 0, tokenise.prefix, 0)
        found.append(
            (
                nn.functional.pad(points[0], first),
                nn.functional.pad(colours, first),
                nn.functional.pad(has_position[0], first[2:], value=False),
            )
        )
    points, colours, has_position = (torch.cat(parts) for parts in zip(*found, strict=True))
    return points, colours, has_position, sizes
