"""The frames in which the tokens of an observation have coordinates, and encodings of these."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.coordinates.frames import (
    Frames,
    are_metric,
    directions_in_frames,
    in_frames,
    vectors_in_frames,
)
from stringline.encoders.positions.divided_heads import DividedHeads, divided
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.space_time import with_time
from stringline.encoders.vision.camera_views import read_key
from stringline.encoders.vision.rgbd import Tokens
from stringline.policies.networks.token_places import TokenPlaces
from stringline.policies.observation.history import ObservationHistory


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
            frames: The frames; None: the coordinates as they are.
            coordinates: The choice of coordinates.
            arms: The arms of the contract.
            history: The past observations to read; None: tokens have no time.
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
        """Returns the places of framed tokens and of the grippers; None: they are not metric."""
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
