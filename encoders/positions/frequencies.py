"""Frequencies: the angular velocity and direction in space of each plane of a head.

Learned frequencies start with directions in all of space and wavelengths that cover the scene.
They are free, along one axis each, or in blocks of channels: circulant blocks, and blocks with
one direction each. Planes that stay still compare contents independently of positions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import POSITIVE, Range, check_ordered
from stringline.encoders.positions.bases import sine_transform


@dataclass(frozen=True, kw_only=True, eq=False)
class FrequencyInitialisation:
    """A choice of initial frequencies; exactly one field is given.

    Attributes:
        wavelengths: Shortest and longest wavelength in the unit of the coordinates, spaced
            logarithmically, with isotropic directions, for any number of axes.
        theta: Base of the geometric series of RoPE, for coordinates in patches; see `rotated_grid`
            and `geometric`.
        uniform: Each component is drawn uniformly from 0 to this value, as in LieRE, for
            coordinates from 0 to 1.
        omega: The frequencies themselves, (1 | sets, axes, planes).
    """

    wavelengths: tuple[float, float] | None = None
    theta: float | None = None
    uniform: float | None = None
    omega: Tensor | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise ValueError(
                f"Frequencies are initialised by {got}; allowed: exactly one of wavelengths, "
                f"theta, uniform, omega."
            )
        if self.wavelengths is not None:
            check_ordered(wavelengths=self.wavelengths)
        if self.theta is not None:
            Range(above=1).check(theta=self.theta)
        if self.uniform is not None:
            POSITIVE.check(uniform=self.uniform)

    @property
    def unit(self) -> float:
        """A typical frequency in radians per unit of the coordinates.

        Parameters are stored in this unit, so that one learning rate serves frequencies and
        weights, for coordinates in metres or millimetres.
        """
        return (
            2 * math.pi / math.sqrt(self.wavelengths[0] * self.wavelengths[1])
            if self.wavelengths
            else 1.0
        )

    def magnitudes(self, planes: int) -> Tensor:
        """Returns the frequency of each plane, (planes,) float64 in radians per unit."""
        if self.wavelengths is not None:
            shortest, longest = self.wavelengths
            return (
                2
                * math.pi
                / torch.logspace(
                    math.log10(shortest),
                    math.log10(longest),
                    planes,
                    dtype=torch.float64,
                    device="cpu",
                )
            )
        if self.theta is not None:
            return geometric(planes, self.theta)
        raise ValueError("Planes along fixed axes need wavelengths or theta.")

    def draw(self, sets: int, axes: int, planes: int, seed: int) -> Tensor:
        """Returns initial frequencies (sets, axes, planes), float64, in radians per unit."""
        generator = torch.Generator().manual_seed(seed)
        if self.omega is not None:
            if (
                self.omega.ndim != 3
                or self.omega.shape[0] not in (1, sets)
                or self.omega.shape[1:] != (axes, planes)
            ):
                got = tuple(self.omega.shape)
                raise ValueError(f"omega has shape {got}; allowed: (1 | {sets}, {axes}, {planes}).")
            return self.omega.detach().double().expand(sets, -1, -1).clone()
        if self.uniform is not None:
            return self.uniform * torch.rand(
                sets, axes, planes, dtype=torch.float64, device="cpu", generator=generator
            )
        if self.theta is not None:
            return rotated_grid(sets, axes, planes, self.theta, generator)
        return isotropic(sets, axes, planes, generator) * self.magnitudes(planes)


def stored_unit(scale: float | None, start: FrequencyInitialisation) -> Tensor:
    """Returns the frequency of a stored parameter of 1: `scale`, by default that of `start`."""
    if scale is not None:
        POSITIVE.check(scale=scale)
    return torch.tensor(start.unit if scale is None else scale)


def geometric(planes: int, theta: float) -> Tensor:
    """Returns theta^(-n / planes), (planes,) float64, as in RoPE (Su et al., RoFormer, 2021)."""
    series: Tensor = theta ** (-torch.arange(planes, dtype=torch.float64, device="cpu") / planes)
    return series


def isotropic(sets: int, axes: int, planes: int, generator: torch.Generator) -> Tensor:
    """Returns unit vectors (sets, axes, planes) float64 with uniformly distributed directions."""
    direction = torch.randn(
        sets, axes, planes, dtype=torch.float64, device="cpu", generator=generator
    )
    unit: Tensor = direction / direction.norm(dim=1, keepdim=True)
    return unit


def rotated_grid(
    sets: int, axes: int, planes: int, theta: float, generator: torch.Generator
) -> Tensor:
    """Returns initial frequencies of RoPE-Mixed for two axes in patches (Heo et al., 2024).

    Each set has one random angle phi. Its first half of planes points along phi, the second half
    along phi + pi / 2, both with the magnitudes of `geometric` (arXiv 2403.13298). The released
    code uses theta = 10; the STRING paper states 100. The result is (sets, 2, planes) float64, in
    radians per patch.
    """
    if axes != 2 or planes % 2:
        raise ValueError(
            f"theta with {axes} axes and {planes} planes; allowed: 2 axes and an even number of "
            f"planes."
        )
    phi = 2 * math.pi * torch.rand(sets, 1, dtype=torch.float64, device="cpu", generator=generator)
    angle = torch.cat(
        (phi.expand(sets, planes // 2), (phi + math.pi / 2).expand(sets, planes // 2)), dim=1
    )
    return torch.stack((angle.cos(), angle.sin()), dim=1) * geometric(planes // 2, theta).repeat(2)


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
            scale: Frequency of a stored parameter of 1, in radians per unit; if None,
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
            block: Channels per block (twice its planes) with a common axis; if None, one run of
                planes per axis.
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


class CirculantFrequencies(Frequencies):
    """Frequencies of circulant blocks L_k = C_k - C_k^T (Schenck et al., STRING, 2025).

    By theorem 3.5, w_kj = 2 sum_n c_kn sin(2 pi j n / b), j = 1 ... b / 2 - 1, in each block of
    size b; plane 0, of the constant and the alternating vector, does not rotate. With
    `FourierBasis` this is Circulant-STRING. The paper does not specify the initial c; here c = W^T
    w_0 / 2b, so the rotating planes start like `MixedFrequencies`.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        block: int = 16,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        uniform: float | None = None,
        omega: Tensor | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Initialises the coefficients; of the initial values exactly one is given.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set, a multiple of `block` / 2.
            block: Size b of the blocks, even, at least 4. Best in the paper: 16 on ImageNet, 32 on
                WebLI-3D.
            wavelengths: Wavelengths of the rotating planes; see `FrequencyInitialisation`.
            theta: Base of the series of the rotating planes.
            uniform: Upper end of the frequencies of the rotating planes.
            omega: Frequencies of the rotating planes, (1 | sets, axes, planes (b - 2) / b).
            scale: Coefficients are stored in units of scale / sqrt(2 b), which makes frequencies an
                orthonormal map of them.
            seed: Seed of the initial parameters.
        """
        if block < 4 or block % 2 or (2 * planes) % block:
            raise ValueError(
                f"block is {block}; allowed: even divisors of head_dim {2 * planes} from 4."
            )
        super().__init__(sets, axes, planes)
        self.block = block
        self.initialisation = FrequencyInitialisation(
            wavelengths=wavelengths, theta=theta, uniform=uniform, omega=omega
        )
        self.register_buffer("scale", stored_unit(scale, self.initialisation))
        self.scaled = nn.Parameter(torch.empty(sets, axes, 2 * planes // block, block))
        self.reset_parameters(seed)

    def coefficients(self) -> Tensor:
        """Returns the first columns c of the circulant blocks, (sets, axes, blocks, block)."""
        return self.scaled * (self.scale / math.sqrt(2 * self.block))

    def forward(self) -> Tensor:
        """Returns W c, zero for the first plane of each block."""
        c = self.coefficients()
        sine = sine_transform(self.block, c.device).to(c.dtype)
        # No matmul, which TF32 or autocast would round.
        return (c.unsqueeze(-2) * sine).sum(dim=-1).flatten(-2)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the directions."""
        blocks = 2 * self.planes // self.block
        turning = self.block // 2 - 1
        omega = self.initialisation.draw(self.sets, self.axes, blocks * turning, seed)
        omega = omega.reshape(self.sets, self.axes, blocks, turning)
        columns = omega @ sine_transform(self.block, omega.device)[1:] / math.sqrt(2 * self.block)
        self.scaled.copy_(columns.to(self.scale.device) / self.scale)


class LinearlyDependentFrequencies(Frequencies):
    """All planes of a block share one learned direction (ComRoPE-LD, Yu et al., 2025, theorem 2).

    Omega = theta_j lambda_p with one direction theta_j per block and one magnitude lambda_p per
    plane (arXiv 2506.03737). With blocks of two channels it equals `MixedFrequencies`.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        block: int = 8,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Initialises isotropic unit directions, and magnitudes by wavelengths or theta.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set.
            block: Channels per block, twice its planes.
            wavelengths: Shortest and longest wavelength in the unit of the coordinates, assigned to
                the blocks in turn.
            theta: Instead of wavelengths: the base of RoPE's series.
            scale: See `MixedFrequencies`.
            seed: Seed of the initial parameters.
        """
        super().__init__(sets, axes, planes)
        check_block(block, planes)
        self.block = block
        self.initialisation = FrequencyInitialisation(wavelengths=wavelengths, theta=theta)
        self.register_buffer("scale", stored_unit(scale, self.initialisation))
        self.directions = nn.Parameter(torch.empty(sets, axes, 2 * planes // block))
        self.scaled = nn.Parameter(torch.empty(sets, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega."""
        return self.directions.repeat_interleave(self.block // 2, dim=-1) * (
            self.scaled * self.scale
        ).unsqueeze(1)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the directions."""
        generator = torch.Generator().manual_seed(seed)
        self.directions.copy_(isotropic(self.sets, self.axes, self.directions.shape[-1], generator))
        in_turn = (
            self.initialisation.magnitudes(self.planes).reshape(self.block // 2, -1).T.flatten()
        )
        in_turn = in_turn.to(self.scale.device)
        self.scaled.copy_((in_turn / self.scale).expand(self.sets, -1))

    @torch.no_grad()
    def zero_(self) -> None:
        """Sets the magnitudes to zero; with zero directions too all gradients would be zero."""
        self.scaled.zero_()


class StillPlanes(Frequencies):
    """Frequencies of which a share is zero and stays zero (p-RoPE, Barbero et al., 2410.06205).

    Tokens without a position, such as instructions and registers, can match the contents of patches
    in these planes, whatever the positions are. As in the paper, these are the last planes, which
    else would rotate most slowly. Departs from it in that the others are spread over the whole
    range of wavelengths, instead of keeping the frequencies that they have among all planes.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        share: float,
        frequencies: Callable[..., Frequencies],
    ) -> None:
        """Makes the frequencies of the other planes.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set.
            share: Share of the planes that stand still, rounded to whole planes; below 1.
            frequencies: Factory of the frequencies of the others.

        Raises:
            ValueError: `share` is out of range, or leaves fewer planes than axes.
        """
        super().__init__(sets, axes, planes)
        Range(least=0, below=1).check(still=share)
        self.count = round(share * planes)
        if planes - self.count < axes:
            raise ValueError(
                f"still is {share}, which leaves {planes - self.count} of {planes} planes; "
                f"allowed: at least {axes} rotating planes for {axes} axes."
            )
        self.rotating = frequencies(sets=sets, axes=axes, planes=planes - self.count)

    def forward(self) -> Tensor:
        """Returns Omega (sets, axes, planes), whose last planes are zero."""
        return nn.functional.pad(self.rotating(), (0, self.count))

    def reset_parameters(self, seed: int) -> None:
        """Draws the initial frequencies of the rotating planes."""
        self.rotating.reset_parameters(seed)

    @torch.no_grad()
    def zero_(self) -> None:
        """Sets the rotating planes to zero, with nonzero gradients."""
        self.rotating.zero_()


def with_still_planes(frequencies: FrequencyFactory, share: float) -> FrequencyFactory:
    """Returns the factory of frequencies of which a share is zero; the given one for 0."""
    if share == 0:
        return frequencies

    def make(sets: int, axes: int, planes: int) -> Frequencies:
        return StillPlanes(sets, axes, planes, share=share, frequencies=frequencies)

    return make
