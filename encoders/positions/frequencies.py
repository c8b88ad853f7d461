"""Frequencies: the angular velocity and direction in space of each plane of a head."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from stringline.encoders.positions.initialisation import FrequencyInitialisation, stored_unit


class Frequencies(nn.Module, ABC):
    """Omega (sets, axes, planes), in radians per unit of the coordinates; `forward` returns it.

    Attributes:
        sets: Independent parameter sets: one per head, or one for all heads.
        axes: Coordinates per place.
        planes: Planes per set.
    """

    def __init__(self, sets: int, axes: int, planes: int) -> None:
        super().__init__()
        self.sets = sets
        self.axes = axes
        self.planes = planes

    scale: Tensor  # Saved with the parameters, whose unit it is.

    @abstractmethod
    def forward(self) -> Tensor:
        """Returns Omega (sets, axes, planes)."""

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Draws the initial frequencies."""

    @torch.no_grad()
    def zero_(self) -> None:
        """Sets the frequencies to zero, with nonzero gradients."""
        if not any(parameter.requires_grad for parameter in self.parameters()):
            raise ValueError(
                f"{type(self).__name__} are fixed and cannot start at zero; allowed: learned ones."
            )
        for parameter in self.parameters():
            parameter.zero_()


FrequencyFactory = Callable[..., Frequencies]
"""Makes frequencies, given `sets`, `axes` and `planes`, such as `MixedFrequencies` partials."""


class MixedFrequencies(Frequencies):
    """Every plane has a learned direction (Heo et al., RoPE-Mixed, 2024, arXiv 2403.13298).

    For any number of axes. Departs from the paper in that directions may start isotropically, with
    wavelengths in the unit of the coordinates; `theta` restores the paper's initial values on
    grids.
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
        """Initialises the frequencies; of the initial values exactly one is given.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set.
            wavelengths: See `FrequencyInitialisation`.
            theta: See `FrequencyInitialisation`.
            uniform: See `FrequencyInitialisation`.
            omega: See `FrequencyInitialisation`.
            scale: Frequency of a stored parameter of 1, in radians per unit; None:
                `FrequencyInitialisation.unit`.
            seed: Seed of the initial parameters.
        """
        super().__init__(sets, axes, planes)
        self.initialisation = FrequencyInitialisation(
            wavelengths=wavelengths, theta=theta, uniform=uniform, omega=omega
        )
        self.register_buffer("scale", stored_unit(scale, self.initialisation))
        self.scaled = nn.Parameter(torch.empty(sets, axes, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega."""
        return self.scaled * self.scale

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the directions."""
        self.scaled.copy_(
            self.initialisation.draw(self.sets, self.axes, self.planes, seed).to(self.scale.device)
            / self.scale
        )


class AxialFrequencies(Frequencies):
    """Every plane belongs to one axis; all axes have nearly the same number of planes.

    RoPE on grids (Su et al., 2021; Heo et al., 2024) gives each axis one run of planes, the first
    axes the longer ones: 32 planes over three axes are 11, 11 and 10. With `block`, blocks of
    planes are assigned to the axes in turn, as in ComRoPE-AP (Yu et al., 2025, arXiv 2506.03737).
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
        """Initialises the frequencies.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place, at most the number of planes.
            planes: Planes per set.
            wavelengths: Shortest and longest wavelength along each axis, in the unit of the
                coordinates.
            theta: Instead of wavelengths: the base of RoPE's series.
            learned: Whether magnitudes are learned; axes never are.
            block: Channels per block (twice its planes) with a common axis; None: one run of planes
                per axis.
            scale: See `MixedFrequencies`.
            seed: Unused: nothing is drawn.
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
        self.initialisation = FrequencyInitialisation(wavelengths=wavelengths, theta=theta)
        self.register_buffer("scale", stored_unit(scale, self.initialisation))
        axis = _runs(axes, planes) if block is None else _turns(axes, planes, block)
        self.shares = torch.bincount(axis, minlength=axes).tolist()  # Planes of each axis.
        self.register_buffer("axis", axis, persistent=False)
        if learned:
            self.scaled = nn.Parameter(torch.empty(sets, planes))
        else:
            self.register_buffer("scaled", torch.empty(sets, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega, with one nonzero entry per plane."""
        chosen = nn.functional.one_hot(self.axis, self.axes).T.to(self.scaled.dtype)
        return self.scaled.unsqueeze(1) * (self.scale * chosen)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Resets the magnitudes."""
        first = self.axis.argsort(stable=True)
        of_axes = torch.cat([self.initialisation.magnitudes(share) for share in self.shares]).to(
            self.scaled
        )
        self.scaled[:, first] = of_axes / self.scale


def check_block(block: int | None, planes: int) -> None:
    """Raises a ValueError if blocks of channels do not tile a head."""
    if block is not None and (block < 2 or block % 2 or (2 * planes) % block):
        raise ValueError(f"block is {block}; allowed: even divisors of head_dim {2 * planes}.")


def _runs(axes: int, planes: int) -> Tensor:
    """Returns the axis of each plane (planes,): one run per axis, the first ones longer by one."""
    return torch.tensor(
        [axis for axis in range(axes) for _ in range(planes // axes + (axis < planes % axes))],
        device="cpu",
    )


def _turns(axes: int, planes: int, block: int) -> Tensor:
    """Returns the axis of each plane (planes,): block after block, the axes in turn."""
    return torch.tensor([plane // (block // 2) % axes for plane in range(planes)], device="cpu")
