"""Frequencies: how fast, and along which direction of space, each plane of a head turns."""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.encoders.positions.initialisation import Start, stored_unit


class Frequencies(nn.Module, ABC):
    """Omega (sets, axes, planes), in radians per unit of the coordinates; `forward` returns it.

    Attributes:
        sets: Independent sets: one for each head, or a single one for all.
        axes: Coordinates per place.
        planes: Planes per set.
    """

    def __init__(self, sets: int, axes: int, planes: int) -> None:
        """Remembers the sizes."""
        super().__init__()
        self.sets = sets
        self.axes = axes
        self.planes = planes

    scale: Tensor  # Kept with the parameters: what they mean depends on it.

    @abstractmethod
    def forward(self) -> Tensor:
        """Returns Omega (sets, axes, planes)."""

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Draws the start anew."""

    @torch.no_grad()
    def zero_(self) -> None:
        """Lets nothing turn, in a way that gradients can change.

        Raises:
            ValueError: The frequencies are fixed, so they would stay zero.
        """
        if not any(parameter.requires_grad for parameter in self.parameters()):
            raise ValueError(
                f"{type(self).__name__} frequencies that are not learned cannot start at zero."
            )
        for parameter in self.parameters():
            parameter.zero_()


class FrequencyFactory(Protocol):
    """Makes frequencies for given sizes, as `functools.partial(Mixed, wavelengths=(0.04, 2.0))` does."""

    def __call__(self, *, sets: int, axes: int, planes: int) -> Frequencies:
        """Returns them at their start."""
        ...


class MixedFrequencies(Frequencies):
    """Every plane turns along a learned direction (Heo et al., RoPE-Mixed, 2024, arXiv 2403.13298), for any number of axes.

    Departs from the paper in that directions may start isotropically and wavelengths are given in
    the unit of the coordinates; `theta` restores its start on grids.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        uniform: float | None = None,
        omega: Tensor | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Draws the start.

        Args:
            sets: Independent sets.
            axes: Coordinates per place.
            planes: Planes per set.
            wavelengths: See `Start`, of which exactly one field is to be given.
            theta: See `Start`.
            uniform: See `Start`.
            omega: See `Start`.
            scale: Frequency that the stored parameter 1 means, in radians per unit. Default:
                `Start.unit`.
            seed: Of the start.

        Raises:
            ValueError: As `Start`.
        """
        super().__init__(sets, axes, planes)
        self.start = Start(wavelengths=wavelengths, theta=theta, uniform=uniform, omega=omega)
        self.register_buffer("scale", stored_unit(scale, self.start))
        self.scaled = nn.Parameter(torch.empty(sets, axes, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega."""
        return self.scaled * self.scale

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew."""
        self.scaled.copy_(self.start.draw(self.sets, self.axes, self.planes, seed) / self.scale)


class AxialFrequencies(Frequencies):
    """Every plane turns along one axis, the axes in turn having as equal a share of the planes as it goes.

    RoPE on grids (Su et al., 2021; Heo et al., 2024) gives each axis one run of planes, the first
    axes the longer ones: 32 planes over three axes are 11, 11 and 10. With `block`, blocks of
    planes take the axes in turn, as in ComRoPE-AP (Yu et al., 2025, arXiv 2506.03737, axial
    partition).
    """

    axis: Tensor
    scaled: Tensor

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        learned: bool = False,
        block: int | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Sets the start.

        Args:
            sets: Independent sets.
            axes: Coordinates per place, at most as many as planes.
            planes: Planes per set.
            wavelengths: Shortest and longest along each axis, in the unit of the coordinates.
            theta: In their stead, the base of RoPE's series.
            learned: Whether magnitudes are learned; axes never are.
            block: Channels per block (twice its planes), which belongs to one axis; None: one run
                of planes for each axis.
            scale: As for `MixedFrequencies`.
            seed: Has no effect: nothing is drawn.

        Raises:
            ValueError: More axes than planes, or a block that does not divide.
        """
        super().__init__(sets, axes, planes)
        if axes > planes:
            raise ValueError(
                f"{axes} axes with {planes} planes; allowed: at least one plane for each axis."
            )
        check_block(block, planes)
        if block is not None and 2 * planes // block < axes:
            raise ValueError(
                f"{axes} axes with {2 * planes // block} blocks; allowed: at least one block for "
                f"each axis."
            )
        self.start = Start(wavelengths=wavelengths, theta=theta)
        self.register_buffer("scale", stored_unit(scale, self.start))
        axis = _runs(axes, planes) if block is None else _turns(axes, planes, block)
        self.shares = torch.bincount(axis, minlength=axes).tolist()  # Planes of each axis.
        self.register_buffer("axis", axis, persistent=False)
        if learned:
            self.scaled = nn.Parameter(torch.empty(sets, planes))
        else:
            self.register_buffer("scaled", torch.empty(sets, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega, with one entry along the axes that is not zero."""
        chosen = nn.functional.one_hot(self.axis, self.axes).T.to(self.scaled.dtype)
        return self.scaled.unsqueeze(1) * (self.scale * chosen)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Returns to the start."""
        first = self.axis.argsort(stable=True)
        of_axes = torch.cat([self.start.magnitudes(share) for share in self.shares]).to(self.scaled)
        self.scaled[:, first] = of_axes / self.scale


def check_block(block: int | None, planes: int) -> None:
    """Refuses blocks of channels that do not tile a head.

    Raises:
        ValueError: `block` is odd, below 2, or does not divide the channels.
    """
    if block is not None and (block < 2 or block % 2 or (2 * planes) % block):
        raise ValueError(f"block is {block}; allowed: even divisors of head_dim {2 * planes}.")


def _runs(axes: int, planes: int) -> Tensor:
    """Returns the axis of each plane (planes,): one run for each axis, the first ones longer by one if need be."""
    return torch.tensor(
        [axis for axis in range(axes) for _ in range(planes // axes + (axis < planes % axes))],
        device="cpu",
    )


def _turns(axes: int, planes: int, block: int) -> Tensor:
    """Returns the axis of each plane (planes,): block after block, the axes in turn."""
    return torch.tensor([plane // (block // 2) % axes for plane in range(planes)], device="cpu")
