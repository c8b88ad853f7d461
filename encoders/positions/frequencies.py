"""Frequencies: how fast, and along which direction of space, each plane of a head turns."""

import math
from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.encoders.positions.fourier import sine_transform
from stringline.encoders.positions.starts import Start, isotropic


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
        self.sets, self.axes, self.planes = sets, axes, planes

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
            raise ValueError(f"{type(self).__name__} frequencies that are not learned cannot start at zero.")
        for parameter in self.parameters():
            parameter.zero_()


class FrequencyRecipe(Protocol):
    """Makes frequencies for given sizes, as `functools.partial(Mixed, wavelengths=(0.04, 2.0))` does."""

    def __call__(self, *, sets: int, axes: int, planes: int) -> Frequencies:
        """Returns them at their start."""
        ...


class Mixed(Frequencies):
    """Every plane turns along a learned direction (Heo et al., RoPE-Mixed, 2024, arXiv 2403.13298), for any number of axes.

    Departs from the paper in that directions may start isotropically and wavelengths are given in the unit of the coordinates;
    `theta` restores its start on grids.
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
            scale: Frequency that the stored parameter 1 means, in radians per unit. Default: `Start.unit`.
            seed: Of the start.

        Raises:
            ValueError: As `Start`.
        """
        super().__init__(sets, axes, planes)
        self.start = Start(wavelengths=wavelengths, theta=theta, uniform=uniform, omega=omega)
        self.register_buffer("scale", torch.tensor(scale or self.start.unit))
        self.scaled = nn.Parameter(torch.empty(sets, axes, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega."""
        return self.scaled * self.scale

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew."""
        self.scaled.copy_(self.start.draw(self.sets, self.axes, self.planes, seed) / self.scale)


class Circulant(Frequencies):
    """Frequencies of antisymmetric circulant blocks L_k = C_k - C_k^T (Schenck et al., STRING, 2025, theorem 3.5).

    w_kj = 2 sum_n c_kn sin(2 pi j n / b), j = 1 ... b / 2 - 1, in each block of size b; plane 0, of the constant and the
    alternating vector, never turns. Together with the basis `RealFourier` this is Circulant-STRING.
    The paper leaves the start of c open; here c = W^T w_0 / 2b, so the turning planes start as those of `Mixed`.
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
        """Draws the start; arguments as for `Mixed`, and a block size.

        Args:
            sets: Independent sets.
            axes: Coordinates per place.
            planes: Planes per set, a multiple of `block` / 2.
            block: Size b of the blocks, even, 4 at least. The paper's best: 16 on ImageNet, 32 on WebLI-3D.
            wavelengths: Of the turning planes.
            theta: Of the turning planes.
            uniform: Of the turning planes.
            omega: Of the turning planes, (1 | sets, axes, planes (b - 2) / b).
            scale: Coefficients are stored in units of scale / sqrt(2 b), in which frequencies are an orthonormal map of them.
            seed: Of the start.

        Raises:
            ValueError: `block` does not fit, or as `Start`.
        """
        if block < 4 or block % 2 or (2 * planes) % block:
            raise ValueError(f"block is {block}; allowed: even divisors of head_dim {2 * planes} from 4.")
        super().__init__(sets, axes, planes)
        self.block = block
        self.start = Start(wavelengths=wavelengths, theta=theta, uniform=uniform, omega=omega)
        self.register_buffer("scale", torch.tensor(scale or self.start.unit))
        self.scaled = nn.Parameter(torch.empty(sets, axes, 2 * planes // block, block))
        self.reset_parameters(seed)

    def coefficients(self) -> Tensor:
        """Returns the first columns c of the circulant blocks, (sets, axes, blocks, block)."""
        return self.scaled * (self.scale / math.sqrt(2 * self.block))

    def forward(self) -> Tensor:
        """Returns W c, zero for the first plane of each block."""
        c = self.coefficients()
        sine = sine_transform(self.block, c.device).to(c.dtype)
        return (c.unsqueeze(-2) * sine).sum(dim=-1).flatten(-2)  # No matmul, which TF32 or autocast would round.

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew."""
        blocks, turning = 2 * self.planes // self.block, self.block // 2 - 1
        omega = self.start.draw(self.sets, self.axes, blocks * turning, seed)
        omega = omega.reshape(self.sets, self.axes, blocks, turning)
        self.scaled.copy_(omega @ sine_transform(self.block)[1:] / math.sqrt(2 * self.block) / self.scale)


class Axial(Frequencies):
    """Every plane turns along one axis, the axes in turn having as equal a share of the planes as it goes.

    RoPE on grids (Su et al., 2021; Heo et al., 2024) gives each axis one run of planes, the first axes the longer ones: 32
    planes over three axes are 11, 11 and 10. With `block`, blocks of planes take the axes in turn, as in ComRoPE-AP (Yu et al.,
    2025, arXiv 2506.03737, axial partition).
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
            block: Channels per block (twice its planes), which belongs to one axis; None: one run of planes for each axis.
            scale: As for `Mixed`.
            seed: Has no effect: nothing is drawn.

        Raises:
            ValueError: More axes than planes, or a block that does not divide.
        """
        super().__init__(sets, axes, planes)
        if axes > planes:
            raise ValueError(f"{axes} axes with {planes} planes; allowed: at least one plane for each axis.")
        _check_block(block, planes)
        if block is not None and 2 * planes // block < axes:
            raise ValueError(f"{axes} axes with {2 * planes // block} blocks; allowed: at least one block for each axis.")
        self.start = Start(wavelengths=wavelengths, theta=theta)
        self.register_buffer("scale", torch.tensor(scale or self.start.unit))
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


class LinearlyDependent(Frequencies):
    """All planes of a block turn along one learned direction (ComRoPE-LD: Yu et al., 2025, arXiv 2506.03737, theorem 2).

    Omega = theta_j lambda_p with one direction theta_j for block j and one magnitude lambda_p for each of its planes. With
    blocks of two channels it is `Mixed`.
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
        """Draws the start: isotropic directions of length one, magnitudes by wavelengths.

        Args:
            sets: Independent sets.
            axes: Coordinates per place.
            planes: Planes per set.
            block: Channels per block, twice its planes.
            wavelengths: Shortest and longest, in the unit of the coordinates; the blocks take them in turn.
            theta: In their stead, the base of RoPE's series.
            scale: As for `Mixed`.
            seed: Of the start.

        Raises:
            ValueError: A block that does not divide.
        """
        super().__init__(sets, axes, planes)
        _check_block(block, planes)
        self.block = block
        self.start = Start(wavelengths=wavelengths, theta=theta)
        self.register_buffer("scale", torch.tensor(scale or self.start.unit))
        self.directions = nn.Parameter(torch.empty(sets, axes, 2 * planes // block))
        self.scaled = nn.Parameter(torch.empty(sets, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega."""
        return self.directions.repeat_interleave(self.block // 2, dim=-1) * (self.scaled * self.scale).unsqueeze(1)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew."""
        generator = torch.Generator().manual_seed(seed)
        self.directions.copy_(isotropic(self.sets, self.axes, self.directions.shape[-1], generator))
        in_turn = self.start.magnitudes(self.planes).reshape(self.block // 2, -1).T.flatten()
        self.scaled.copy_((in_turn / self.scale).expand(self.sets, -1))

    @torch.no_grad()
    def zero_(self) -> None:
        """Sets magnitudes to zero and leaves directions: with both zero no gradient would be left."""
        self.scaled.zero_()


def _check_block(block: int | None, planes: int) -> None:
    if block is not None and (block < 2 or block % 2 or (2 * planes) % block):
        raise ValueError(f"block is {block}; allowed: even divisors of head_dim {2 * planes}.")


def _runs(axes: int, planes: int) -> Tensor:
    """Returns the axis of each plane (planes,): one run for each axis, the first ones longer by one if need be."""
    return torch.tensor([axis for axis in range(axes) for _ in range(planes // axes + (axis < planes % axes))], device="cpu")


def _turns(axes: int, planes: int, block: int) -> Tensor:
    """Returns the axis of each plane (planes,): block after block, the axes in turn."""
    return torch.tensor([plane // (block // 2) % axes for plane in range(planes)], device="cpu")
