"""Orthogonal bases P of the STRING family, learned from unconstrained parameters or constant."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.folding import spread
from stringline.encoders.positions.fourier import real_fourier
from stringline.encoders.positions.precision import at_least_float32, without_autocast


class Basis(nn.Module, ABC):
    """An orthogonal matrix P (sets, size, size), in blocks of neighbouring channels.

    `forward` returns P in float32 at least, also under autocast. Its columns n and n + size / 2
    span plane n.

    Attributes:
        sets: Independent bases: one per head, or one for all heads.
        size: Rows of P, the head dimension.
    """

    def __init__(self, sets: int, size: int) -> None:
        super().__init__()
        self.sets = sets
        self.size = size

    @abstractmethod
    def blocks(self) -> Tensor:
        """Returns the blocks of P, (sets, size / block, block, block); see `spread`."""

    def forward(self) -> Tensor:
        """Returns P."""
        return spread(self.blocks())

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Resets the parameters to their initial values, by default zero for the identity."""
        for parameter in self.parameters():
            parameter.zero_()


BasisFactory = Callable[..., Basis]
"""Makes a basis, given `sets` and `size`, such as `functools.partial(CayleyBasis, block=8)`."""


class AntisymmetricBasis(Basis):
    """A map from antisymmetric to orthogonal matrices, for heads or blocks of channels.

    P = start map(S): `start` is a constant (sets, blocks, block, block), the value of P at S = 0;
    None: the identity.
    """

    start: Tensor | None
    rows: Tensor
    columns: Tensor

    def __init__(
        self,
        sets: int,
        size: int,
        *,
        block: int | None = None,
        bandwidth: int | None = None,
        seed: int = 0,
    ) -> None:
        """Starts at the identity.

        Args:
            sets: Independent bases.
            size: Rows of P.
            block: Number of neighbouring channels per block of P; None: one block.
            bandwidth: S has nonzero entries only within this distance of the diagonal; None: S is
                dense.
            seed: Unused: nothing is drawn.
        """
        super().__init__(sets, size)
        self.block = _checked_block(block or size, size)
        if bandwidth is not None and not 1 <= bandwidth < self.block:
            raise ValueError(f"bandwidth is {bandwidth}; allowed: 1 to {self.block - 1}.")
        rows, columns = torch.triu_indices(self.block, self.block, offset=1, device="cpu")
        inside = columns - rows <= (bandwidth or self.block)
        self.register_buffer("rows", rows[inside], persistent=False)
        self.register_buffer("columns", columns[inside], persistent=False)
        self.skew = nn.Parameter(torch.zeros(sets, size // self.block, int(inside.sum())))
        self.register_buffer("start", None)

    def blocks(self) -> Tensor:
        """Returns the blocks of P."""
        with without_autocast(self.skew):
            entries = at_least_float32(self.skew)
            blocks = self._map(antisymmetric(entries, self.block, self.rows, self.columns))
            return blocks if self.start is None else self.start.to(blocks.dtype) @ blocks

    @abstractmethod
    def _map(self, skew: Tensor) -> Tensor:
        """Returns an orthogonal matrix for each antisymmetric one, (sets, blocks, block, block)."""


class CayleyBasis(AntisymmetricBasis):
    """P = (I - S)(I + S)^-1 (Schenck et al., STRING, 2025, arXiv 2502.02562, eq. 10).

    S is dense, banded or in blocks. The paper does not specify its initial value; here S = 0, the
    identity, with the gradient -2 dS.
    """

    def _map(self, skew: Tensor) -> Tensor:
        identity = torch.eye(self.block, dtype=skew.dtype, device=skew.device)
        # Both factors are functions of S, so they commute.
        basis: Tensor = torch.linalg.solve(identity + skew, identity - skew)
        return basis


class ExponentialBasis(AntisymmetricBasis):
    """P = exp(S) (Liu and Zhou, Rethinking RoPE, 2025, section 5): all rotations, but slower.

    It takes ten times as long as `CayleyBasis`.
    """

    def _map(self, skew: Tensor) -> Tensor:
        basis: Tensor = torch.linalg.matrix_exp(skew)
        return basis


class GivensBasis(Basis):
    """A product of plane rotations of all channel pairs (Liu and Zhou, 2025, section 5).

    The pairs form rounds of disjoint pairs, as in a tournament, so size - 1 steps replace size
    (size - 1) / 2. Angles start at zero.
    """

    partner: Tensor
    pair: Tensor
    sign: Tensor

    def __init__(self, sets: int, size: int, *, seed: int = 0) -> None:
        """Starts at the identity.

        Args:
            sets: Independent bases.
            size: Rows of P, even.
            seed: Unused: nothing is drawn.
        """
        super().__init__(sets, size)
        rounds = self._rounds()
        # For each channel its index among the first, then the second channels of the pairs.
        where = rounds.flatten(1).argsort(dim=1)
        self.register_buffer("pair", where.remainder(size // 2), persistent=False)
        self.register_buffer(
            "partner", rounds.flip(1).flatten(1).gather(1, where), persistent=False
        )
        self.register_buffer("sign", torch.where(where < size // 2, -1, 1), persistent=False)
        self.angles = nn.Parameter(torch.zeros(sets, len(rounds), size // 2))

    def _rounds(self) -> Tensor:
        """Returns the first and second channels of the pairs, (rounds, 2, size / 2)."""
        players = torch.arange(self.size, device="cpu")
        half = self.size // 2
        tables = [torch.cat((players[:1], players[1:].roll(n))) for n in range(self.size - 1)]
        return torch.stack([torch.stack((each[:half], each[half:].flip(0))) for each in tables])

    def blocks(self) -> Tensor:
        """Returns P as a single block."""
        with without_autocast(self.angles):
            angles = at_least_float32(self.angles)
            of_channel = angles.gather(2, self.pair.expand(self.sets, -1, -1))
            cos = of_channel.cos().unsqueeze(-1)
            sin = (of_channel.sin() * self.sign).unsqueeze(-1)
            rows = torch.eye(self.size, dtype=angles.dtype, device=angles.device).expand(
                self.sets, -1, -1
            )
            for n, partner in enumerate(self.partner):
                rows = rows * cos[:, n] + rows[:, partner] * sin[:, n]
            return rows.unsqueeze(1)


class ButterflyGivens(GivensBasis):
    """Plane rotations of the channel pairs of a fast Fourier transform: log2(size) steps."""

    def __init__(self, sets: int, size: int, *, seed: int = 0) -> None:
        if size & (size - 1):
            raise ValueError(f"head_dim is {size}; allowed for a butterfly: powers of two.")
        super().__init__(sets, size, seed=seed)

    def _rounds(self) -> Tensor:
        channels = torch.arange(self.size, device="cpu")
        rounds = []
        for stride in (1 << step for step in range(int(math.log2(self.size)))):
            low = channels[channels & stride == 0]
            rounds.append(torch.stack((low, low + stride)))
        return torch.stack(rounds)


class HouseholderBasis(Basis):
    """A product of an even number of reflections I - 2 v v^T / v^T v.

    The reflections start in equal pairs, so P starts at the identity: v = v_0 + w with a constant
    v_0 and w = 0.
    """

    start: Tensor

    def __init__(self, sets: int, size: int, *, reflections: int = 8, seed: int = 0) -> None:
        """Starts at the identity.

        Args:
            sets: Independent bases.
            size: Rows of P.
            reflections: Number of reflections, even: an odd product cannot be near the identity.
            seed: Seed of the constant vectors.
        """
        if reflections < 2 or reflections % 2:
            raise ValueError(f"reflections is {reflections}; allowed: even numbers from 2.")
        super().__init__(sets, size)
        self.register_buffer("start", torch.empty(sets, reflections, size))
        self.offsets = nn.Parameter(torch.empty(sets, reflections, size))
        self.reset_parameters(seed)

    def blocks(self) -> Tensor:
        """Returns P as a single block."""
        with without_autocast(self.offsets):
            v = (self.start + self.offsets).to(
                torch.promote_types(self.offsets.dtype, torch.float32)
            )
            v = v / v.norm(dim=-1, keepdim=True)
            basis = torch.eye(self.size, dtype=v.dtype, device=v.device).expand(self.sets, -1, -1)
            for reflection in range(v.shape[1]):
                normal = v[:, reflection, :, None]
                basis = basis - 2 * (basis @ normal) @ normal.mT
            return basis.unsqueeze(1)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the constant vectors anew."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(
            self.sets, self.start.shape[1] // 2, self.size, device="cpu", generator=generator
        )
        self.start.copy_((drawn / drawn.norm(dim=-1, keepdim=True)).repeat_interleave(2, dim=1))
        self.offsets.zero_()


class FourierBasis(Basis):
    """The constant real Fourier basis of circulant blocks; see `fourier.real_fourier`."""

    constant: Tensor

    def __init__(self, sets: int, size: int, *, block: int = 16, seed: int = 0) -> None:
        """Computes the basis, the same for all heads.

        Args:
            sets: Unused: one basis serves all heads.
            size: Rows of P.
            block: Size of the blocks, even.
            seed: Unused: nothing is drawn.
        """
        super().__init__(1, size)
        self.block = _checked_block(block, size)
        self.register_buffer(
            "constant",
            self._computed(torch.get_default_dtype(), torch.device("cpu")),
            persistent=False,
        )

    def blocks(self) -> Tensor:
        """Returns the blocks of P, all the same."""
        return self.constant.expand(1, self.size // self.block, -1, -1)

    def _computed(self, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        return real_fourier(self.block, device).to(torch.promote_types(dtype, torch.float32))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Recomputes the basis for another type or device; a cast would round it for good."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.constant = self._computed(self.constant.dtype, self.constant.device)
        return self


def antisymmetric(entries: Tensor, size: int, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns S (..., size, size), S^T = -S, from its entries (..., K) above the diagonal."""
    upper = entries.new_zeros(*entries.shape[:-1], size * size).index_copy(
        -1, rows * size + columns, entries
    )
    upper = upper.reshape(*entries.shape[:-1], size, size)
    return upper - upper.mT


def _checked_block(block: int, size: int) -> int:
    if block < 2 or block % 2 or size % block:
        raise ValueError(f"block is {block}; allowed: even divisors of head_dim {size}.")
    return block
