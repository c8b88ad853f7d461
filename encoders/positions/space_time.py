"""Positions in space and time: a last axis in seconds, with wavelengths of its own.

By theorem 3.4 of STRING (Schenck et al., 2025, arXiv 2502.02562) an axis is one more row of the
frequencies: R(r, t) = P RoPE(Omega r + omega t) P^T depends on differences of positions and of
times, in the same basis.
"""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.initialisation import FrequencyInitialisation
from stringline.encoders.positions.places import Places, complete
from stringline.encoders.positions.precision import at_least_float32
from stringline.encoders.positions.rotary import NoEncoding, Rotary


class SpaceTime(Rotary):
    """An encoding by frequencies, with time as its last axis.

    Tokens without a position are put at the centroid of the others in space; they keep their own
    time.

    The planes that are fastest in space start as the slowest in time and vice versa: some compare
    positions at any time, others compare times at any position. In the same order each plane would
    mix both.
    """

    scale: Tensor
    scaled: Tensor

    def __init__(self, space: Rotary, wavelengths: tuple[float, float]) -> None:
        """Adds the axis, with the shortest and longest wavelength in seconds.

        Its frequencies are learned if those of space are. `space` becomes a part of this encoding.
        """
        super().__init__(space.heads, space.head_dim, space.axes + 1, share_heads=space.sets == 1)
        self.space = space
        self.wavelengths = (float(wavelengths[0]), float(wavelengths[1]))
        self.initialisation = FrequencyInitialisation(wavelengths=self.wavelengths)
        self.register_buffer("scale", torch.tensor(self.initialisation.unit))
        scaled = torch.empty(space.sets, space.head_dim // 2)
        if any(parameter.requires_grad for parameter in space.parameters()):
            self.scaled = nn.Parameter(scaled)
        else:
            self.register_buffer("scaled", scaled)
        self._start_time()

    def frequencies(self) -> Tensor:
        """Returns Omega, (heads | 1, axes, head_dim / 2), in radians per unit, last per second."""
        omega = self.space.frequencies()
        time = (self.scaled * self.scale).to(omega.dtype).unsqueeze(1)
        return torch.cat((omega, time), dim=1)

    def basis_blocks(self) -> Tensor | None:
        """Returns the basis of space."""
        return self.space.basis_blocks()

    def prepare(
        self,
        coordinates: Tensor,
        has_position: Tensor | None = None,
        fallback_position: Tensor | None = None,
        *,
        spread: Tensor | None = None,
        like: Places | None = None,
    ) -> Places:
        """Computes places; see `PositionEncoding.prepare`. All tokens keep their time."""
        self._check(coordinates, has_position, spread)
        if has_position is not None:
            known = at_least_float32(coordinates)
            here = complete(
                known[..., :-1],
                has_position,
                None if fallback_position is None else fallback_position[..., :-1],
            )
            coordinates = torch.cat((here, known[..., -1:]), dim=-1)
            if spread is not None:
                spread = torch.where(has_position.unsqueeze(-1), spread, 0.0)
        return super().prepare(coordinates, spread=spread, like=like)

    # As `FixedRotary` it would move tokens without a position to the mean time.
    def folded(self) -> "SpaceTime":  # type: ignore[override]
        """Returns the frequencies alone, no longer learned."""
        folded = SpaceTime(self.space.folded(), self.wavelengths).to(self.scaled.device)
        folded.scaled = self.scaled.detach().clone()
        return folded

    def without_constant_basis(self) -> "SpaceTime":
        """Returns this encoding without a basis that has no parameters."""
        bare = self.space.without_constant_basis()
        if bare is self.space:
            return self
        other = copy.copy(self)  # Shares its modules, but not the dictionary that names them.
        other._modules = dict(self._modules) | {"space": bare}
        return other

    @torch.no_grad()
    def zero_(self) -> Self:
        """Sets all frequencies of space and time to zero; see `PositionEncoding.zero_`."""
        self.space.zero_()
        self.scaled.zero_()
        return self

    def reset_parameters(self, seed: int) -> None:
        """Draws the frequencies of space and resets those of time."""
        self.space.reset_parameters(seed)
        self._start_time()

    @torch.no_grad()
    def _start_time(self) -> None:
        slowest_first = self.space.frequencies().detach().norm(dim=1).argsort(dim=-1, stable=True)
        magnitudes = (
            self.initialisation.magnitudes(self.scaled.shape[-1]) / self.initialisation.unit
        )
        self.scaled.scatter_(
            1, slowest_first, magnitudes.to(self.scaled).expand_as(self.scaled).contiguous()
        )


def with_time(encoding: PositionEncoding, wavelengths: tuple[float, float]) -> PositionEncoding:
    """Adds a time axis to an encoding of positions; wavelengths as for `SpaceTime`."""
    if isinstance(encoding, NoEncoding):
        return NoEncoding(encoding.heads, encoding.head_dim, encoding.axes + 1)
    if not isinstance(encoding, Rotary):
        raise ValueError(
            f"Time cannot be added to {type(encoding).__name__}; allowed: encodings by "
            f"frequencies, such as CayleyString, CirculantString, RopeMixed or Rope, and "
            f"NoEncoding."
        )
    return SpaceTime(encoding, wavelengths)
