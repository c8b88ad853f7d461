"""Orthogonal bases P of the STRING family, and their folding into the projections of attention.

A basis is learned from unconstrained parameters or constant. Multiplied into the projections of
queries, keys and values once per forward pass, it costs nothing per token. The Fourier basis is
that of circulant blocks, which `CirculantFrequencies` share.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.precision import at_least_float32, without_autocast


def spread(blocks: Tensor) -> Tensor:
    """Returns P (sets, size, size) from blocks (sets, size / b, b, b) of neighbouring channels.

    Column j of the first half of a block becomes column `block_index` b / 2 + j of P, and its
    partner the column size / 2 further, where a rotation expects the planes. A single block is P
    itself.
    """
    sets, count, block = blocks.shape[:3]
    identity = torch.eye(count, dtype=blocks.dtype, device=blocks.device)
    # (sets, block_index, row, half, plane) -> (sets, block_index, row, half, column's block_index,
    # plane)
    halves = blocks.reshape(sets, count, block, 2, 1, block // 2) * identity[:, None, None, :, None]
    return halves.reshape(sets, count * block, count * block)


def into_input(blocks: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns P^T W, a projection into the basis with blocks (heads | 1, head_dim / b, b, b).

    `weight` is (k heads head_dim, C) for k stacked projections, or their bias (k heads head_dim,).
    """
    count, block = blocks.shape[1:3]
    turned = blocks.mT @ weight.reshape(-1, heads, count, block, weight[0].numel())
    if count > 1:
        turned = turned.reshape(-1, heads, count, 2, block // 2, turned.shape[-1]).transpose(2, 3)
    return turned.reshape(weight.shape)


def into_output(blocks: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns W_o P, a projection out of the basis with blocks (heads | 1, head_dim / b, b, b).

    `weight` is (C, heads head_dim); its bias is unchanged.
    """
    count, block = blocks.shape[1:3]
    # In this order matmul does not copy P for each row of W_o.
    by_block = weight.reshape(-1, heads, count, block).permute(1, 2, 0, 3)
    turned = (by_block @ blocks).permute(2, 0, 1, 3)
    if count > 1:
        turned = turned.reshape(-1, heads, count, 2, block // 2).transpose(2, 3)
    return turned.reshape(weight.shape)


def project(x: Tensor, blocks: Tensor) -> Tensor:
    """Returns P^T x for tokens x (..., heads, N, head_dim), in their type."""
    return _times(x, spread(blocks))


def project_back(y: Tensor, blocks: Tensor) -> Tensor:
    """Undoes `project`."""
    return _times(y, spread(blocks).mT)


def _times(x: Tensor, basis: Tensor) -> Tensor:
    """Returns x P, computed in float32 at least and rounded to the type of x at the end."""
    kind = x.dtype
    x = at_least_float32(x)
    with without_autocast(x):
        return (x @ basis.to(x.dtype)).to(kind)


def commutes_with_bases(norm: nn.Module | None) -> bool:
    """Returns whether a normalisation of the channels of a head commutes with orthogonal matrices.

    None, the identity and an RMSNorm without gains do; gains per channel or a subtracted mean do
    not.
    """
    return (
        norm is None
        or isinstance(norm, nn.Identity)
        or (isinstance(norm, nn.RMSNorm) and norm.weight is None)
    )


def check_foldable(norm: nn.Module | None) -> None:
    """Raises a ValueError if a norm between projection and rotation forbids folding."""
    if not commutes_with_bases(norm):
        raise ValueError(
            f"{norm} between projection and rotation does not commute with a basis, so folding "
            f"would change the outputs; allowed: no normalisation, or an RMSNorm without gains. "
            f"Deploy this model unfolded."
        )


def sine_transform(block: int, device: torch.device | None = None) -> Tensor:
    """Returns W (block / 2, block) float64, W_jn = 2 sin(2 pi j n / block), of a circulant block.

    W maps the first column of a block to its frequencies. The first row (j = 0) is zero: it belongs
    to the plane of the constant and the alternating vector, which an antisymmetric circulant matrix
    does not rotate. On the other rows W W^T = 2 block I.
    """
    j, n = (
        torch.arange(count, dtype=torch.float64, device=device) for count in (block // 2, block)
    )
    return 2 * torch.sin(2 * math.pi / block * j[:, None] * n)


def real_fourier(block: int, device: torch.device | None = None) -> Tensor:
    """Returns the real Fourier basis of a block, (block, block) float64, orthogonal.

    Columns j and j + block / 2 span plane j: the normalised cosine and sine of frequency j; for j =
    0 the constant and the alternating vector.
    """
    j, n = (
        torch.arange(count, dtype=torch.float64, device=device) for count in (block // 2, block)
    )
    angle = 2 * math.pi / block * n[:, None] * j
    cosine, sine = (math.sqrt(2 / block) * wave for wave in (angle.cos(), angle.sin()))
    cosine[:, 0] = math.sqrt(1 / block)
    sine[:, 0] = math.sqrt(1 / block) * torch.cos(math.pi * n)
    return torch.cat((cosine, sine), dim=1)


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
    if None, the identity.
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

        Other Args:
            sets: Independent bases.
            size: Rows of P.
            block: Number of neighbouring channels per block of P; if None, one block.
            bandwidth: S has nonzero entries only within this distance of the diagonal; if None, S
                is dense.
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
