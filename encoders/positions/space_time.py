"""Places in space and time: a last axis of seconds beside the axes of any coordinates, with wavelengths of its own.

Theorem 3.4 of STRING (Schenck et al., 2025, arXiv 2502.02562) asks nothing of an axis but that it
is one more row of the frequencies: R(r, t) = P RoPE(Omega r + omega t) P^T sees differences of
places and of times, in the same basis.
"""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.initialisation import Start
from stringline.encoders.positions.places import Places, complete
from stringline.encoders.positions.precision import at_least_float32
from stringline.encoders.positions.rotary import NoEncoding, Rotary


class SpaceTime(Rotary):
    """An encoding by frequencies, with time as one more axis, the last one.

    A token without a place stands at the centroid of the others in space, as everywhere; its time
    is known, and is its own.

    The planes that turn fastest in space start as the slowest in time and the other way round: some
    then compare places whenever something was there, others compare times wherever it was. With
    both in the same order no plane could do either.
    """

    scale: Tensor
    scaled: Tensor

    def __init__(self, space: Rotary, wavelengths: tuple[float, float]) -> None:
        """Adds the axis; its frequencies are learned where those of space are.

        Args:
            space: Turns by places; becomes a part of this encoding.
            wavelengths: Shortest and longest in time, s.

        Raises:
            ValueError: The wavelengths are no range.
        """
        super().__init__(space.heads, space.head_dim, space.axes + 1, share_heads=space.sets == 1)
        self.space = space
        self.wavelengths = (float(wavelengths[0]), float(wavelengths[1]))
        self.start = Start(wavelengths=self.wavelengths)
        self.register_buffer("scale", torch.tensor(self.start.unit))
        scaled = torch.empty(space.sets, space.head_dim // 2)
        if any(parameter.requires_grad for parameter in space.parameters()):
            self.scaled = nn.Parameter(scaled)
        else:
            self.register_buffer("scaled", scaled)
        self._start_time()

    def frequencies(self) -> Tensor:
        """Returns Omega, (heads | 1, axes, head_dim / 2), in radians per unit of the coordinates, and per second in the end."""
        omega = self.space.frequencies()
        time = (self.scaled * self.scale).to(omega.dtype).unsqueeze(1)
        return torch.cat((omega, time), dim=1)

    def basis_blocks(self) -> Tensor | None:
        """Returns the basis of space."""
        return self.space.basis_blocks()

    def prepare(
        self, coordinates: Tensor, placed: Tensor | None = None, nowhere: Tensor | None = None
    ) -> Places:
        """Computes what all layers need; see `PositionEncoding.prepare`.

        Times (the last axis) are always taken as they are.
        """
        self._check(coordinates, placed)
        if placed is not None:
            known = at_least_float32(coordinates)
            here = complete(known[..., :-1], placed, None if nowhere is None else nowhere[..., :-1])
            coordinates = torch.cat((here, known[..., -1:]), dim=-1)
        return super().prepare(coordinates)

    def folded(self) -> "SpaceTime":  # type: ignore[override]  # Frequencies alone would take unplaced tokens out of their time.
        """Returns the frequencies alone, no longer learned."""
        folded = SpaceTime(self.space.folded(), self.wavelengths).to(self.scaled.device)
        folded.scaled = self.scaled.detach().clone()
        return folded

    def without_constant_basis(self) -> "SpaceTime":
        """Returns this encoding without a basis that has no parameters; see `PositionEncoding.without_constant_basis`."""
        bare = self.space.without_constant_basis()
        if bare is self.space:
            return self
        other = copy.copy(
            self
        )  # Shares its modules and parameters, but not the table that names them.
        other._modules = dict(self._modules) | {"space": bare}
        return other

    @torch.no_grad()
    def zero_(self) -> Self:
        """Lets nothing turn, in space or time; see `PositionEncoding.zero_`."""
        self.space.zero_()
        self.scaled.zero_()
        return self

    def reset_parameters(self, seed: int) -> None:
        """Draws the frequencies of space anew and returns time to its start."""
        self.space.reset_parameters(seed)
        self._start_time()

    @torch.no_grad()
    def _start_time(self) -> None:
        slowest_first = self.space.frequencies().detach().norm(dim=1).argsort(dim=-1, stable=True)
        magnitudes = self.start.magnitudes(self.scaled.shape[-1]) / self.start.unit
        self.scaled.scatter_(
            1, slowest_first, magnitudes.to(self.scaled).expand_as(self.scaled).contiguous()
        )


def with_time(encoding: PositionEncoding, wavelengths: tuple[float, float]) -> PositionEncoding:
    """Returns an encoding of places as one of places and times.

    Args:
        encoding: By frequencies, or none at all, which stays none.
        wavelengths: Shortest and longest in time, s.

    Raises:
        ValueError: The encoding is of another kind, so there is no telling what an axis of its own
            would be.
    """
    if isinstance(encoding, NoEncoding):
        return NoEncoding(encoding.heads, encoding.head_dim, encoding.axes + 1)
    if not isinstance(encoding, Rotary):
        raise ValueError(
            f"Time cannot be added to {type(encoding).__name__}; allowed: encodings by "
            f"frequencies, such as CayleyString, "
            "CirculantString, RopeMixed or Rope, and NoEncoding."
        )
    return SpaceTime(encoding, wavelengths)
