"""A denoiser whose action tokens have places, and read the conditioning tokens by their places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stringline.encoders.positions.bases import into_input, into_output
from stringline.encoders.positions.encoding import Places, PositionEncoding
from stringline.encoders.positions.precision import at_least_float32, rounded, without_autocast
from stringline.encoders.vision.attention import KeyValues, attend
from stringline.policies.networks.denoiser import (
    STEPS_PER_TOKEN,
    DenoiserBlock,
    Precomputed,
    TransformerDenoiser,
    join_heads,
    split_heads,
)
from stringline.policies.networks.inputs import TokenPlaces


@dataclass(frozen=True, kw_only=True)
class PlacedMemory:
    """What a `PlacedDenoiser` precomputes of B observations.

    Attributes:
        blocks: What each block reads.
        keys: Places of the conditioning tokens.
        places: Their coordinates and those of the grippers.
        state: (B, 1, 1, dim) embedded states; if None, there are none.
    """

    blocks: list["BlockMemory"]
    keys: Places
    places: TokenPlaces
    state: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class BlockMemory:
    """What a block precomputes: rotated keys and values, and projections in their basis.

    Attributes:
        known: Keys and values, and their places.
        query: Weight (dim, dim) of the projection of queries.
        query_bias: Its bias (dim,).
        output: Weight (dim, dim) of the projection of the result.
    """

    known: KeyValues
    query: Tensor
    query_bias: Tensor
    output: Tensor


class PlacedBlock(DenoiserBlock):
    """A block whose action tokens read the conditioning tokens by their places.

    In float32 at least, also under autocast, as `PositionalAttention`: positions are distinguished
    by small differences of large numbers.

    Attributes:
        attention_type: See `PositionalAttention`.
    """

    def __init__(self, dim: int, conditioning_dim: int, heads: int) -> None:
        super().__init__(dim, conditioning_dim, heads)
        self.attention_type = torch.float32

    def precompute_at(self, conditioning: Tensor, places: Places, *, values: bool) -> BlockMemory:
        """Returns what the block reads; `values` for relative values."""
        with without_autocast(conditioning):
            normal = self.conditioning_norm(conditioning.to(self.cross_kv.weight.dtype))
            keys, content = self.cross_kv(normal).chunk(2, dim=-1)
            keys = split_heads(at_least_float32(places.embed(keys)), self.heads)
            content = split_heads(at_least_float32(content), self.heads)
            known = KeyValues(
                keys=places.rotate(keys),
                values=places.rotate(content) if values else content,
                places=places,
            )
            return self._in_basis(known, values=values)

    def _in_basis(self, known: KeyValues, *, values: bool) -> BlockMemory:
        """Folds the basis into the projections, once per observation instead of once per step."""
        weight = at_least_float32(self.cross_q.weight)
        bias = at_least_float32(self.cross_q.bias)
        output = at_least_float32(self.cross_out.weight)
        basis = known.places.basis_blocks
        if basis is not None:
            precise = torch.promote_types(basis.dtype, weight.dtype)
            basis = basis.to(precise)
            weight = into_input(basis, weight.to(precise), self.heads)
            bias = into_input(basis, bias.to(precise), self.heads)
            output = into_output(basis, output.to(precise), self.heads) if values else output
        return BlockMemory(known=known, query=weight, query_bias=bias, output=output)

    def _read(self, x: Tensor, memory: Any, present: Tensor | None) -> Tensor:
        """Returns what action tokens x (B, K L, dim) read from the conditioning tokens."""
        reading: Reading = memory
        block = reading.memory
        queries = reading.queries
        with without_autocast(x):
            q = functional.linear(x.to(block.query.dtype), block.query, block.query_bias)
            q = queries.rotate_in_basis(split_heads(queries.embed(q), self.heads))
            factor = queries.logit_factor(block.known.places)
            q, k, v = (
                rounded(one, self.attention_type)
                for one in (q, block.known.keys, block.known.values)
            )
            y = at_least_float32(attend(q, k, v, factor, present))
            y = join_heads(queries.rotate_inverse_in_basis(y) if reading.values else y)
            bias = at_least_float32(self.cross_out.bias)
            return functional.linear(y.to(block.output.dtype), block.output, bias)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a block reads in one step, and from where.

    Attributes:
        memory: What it reads.
        queries: Places of the action tokens of all samples, K L per observation.
        values: Relative values; see `PositionalAttention`.
    """

    memory: BlockMemory
    queries: Places
    values: bool


class PlacedDenoiser(TransformerDenoiser):
    """A `TransformerDenoiser` whose action tokens are at a gripper, or at the noisy pose itself.

    Cross-attention rotates queries, keys and values by the places of action tokens and conditioning
    tokens, as in the observation encoder; the keys are rotated once per observation. After 3D
    Diffuser Actor (Ke et al., 2024, arXiv 2402.10885), whose noisy poses read a cloud of features
    by relative positions.

    Each token has the actions of one arm at consecutive steps, `steps_per_token` times the number
    of arms. So there are as many tokens, of the same size, as in a `TransformerDenoiser`, all with
    the same weights; their learned embeddings tell steps and arms apart.
    """

    order: Tensor
    back: Tensor

    def __init__(
        self,
        *,
        action_dim: int,
        chunk: int,
        conditioning_dim: int,
        encoding: PositionEncoding,
        arms: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]] | None = None,
        values: bool = True,
        dim: int = 128,
        depth: int = 3,
        heads: int = 4,
        steps_per_token: int = STEPS_PER_TOKEN,
        state_dim: int = 0,
    ) -> None:
        """Builds the network.

        Args:
            action_dim: Numbers per action, A.
            chunk: Actions per chunk, T; a multiple of `steps_per_token` times the number of arms.
            conditioning_dim: Width of the conditioning tokens.
            encoding: Encoding of the coordinates of the conditioning tokens, with `heads` heads.
            arms: The numbers of an action that move each arm; equally many for all arms.
            positions: Those that are the position of each gripper in the frame of the measured one;
                tokens are at the mean of these noisy positions. If None, at the measured gripper.
            values: Relative values; see `PositionalAttention`.
            dim: Width of the action tokens.
            depth: Number of blocks.
            heads: Number of attention heads.
            steps_per_token: Consecutive actions per token, for one arm.
            state_dim: Numbers of the state beside the conditioning tokens; 0: there is none.
        """
        super().__init__(
            action_dim=action_dim,
            chunk=chunk,
            conditioning_dim=conditioning_dim,
            dim=dim,
            depth=depth,
            heads=heads,
            steps_per_token=steps_per_token,
            state_dim=state_dim,
        )
        order = _checked_order(arms, action_dim)
        if chunk % (steps_per_token * len(arms)):
            raise ValueError(
                f"chunk is {chunk}; allowed for {len(arms)} arms with places: multiples of "
                f"{steps_per_token * len(arms)}."
            )
        self.encoding = encoding
        self.values = values
        self.arms = len(arms)
        self.positions: Tensor | None
        self._keep("order", order)
        self._keep("back", [order.index(number) for number in range(action_dim)])
        self._keep("positions", positions)

    def _keep(self, name: str, numbers: Sequence[object] | None) -> None:
        """Keeps indices on the device of the network, but not in checkpoints."""
        indices = None if numbers is None else torch.tensor(numbers)
        self.register_buffer(name, indices, persistent=False)

    def precompute(
        self,
        conditioning: Tensor,
        state: Tensor | None = None,
        *,
        places: TokenPlaces | None = None,
    ) -> Precomputed:
        """Projects conditioning tokens to keys and values, and rotates them by their places."""
        if places is None:
            raise ValueError("A denoiser with places needs those of the conditioning tokens.")
        keys = self.encoding.prepare(
            places.coordinates,
            places.has_position,
            places.grippers.mean(dim=1),
            spread=places.spread,
        )
        blocks = [
            block.precompute_at(conditioning, keys, values=self.values)
            for block in self._placed_blocks()
        ]
        return PlacedMemory(blocks=blocks, keys=keys, places=places, state=self._embedded(state))

    def forward(
        self, noisy: Tensor, level: Tensor, precomputed: Precomputed, present: Tensor | None = None
    ) -> Tensor:
        """Denoises K samples per observation; see `Denoiser`."""
        batch, samples, chunk, _ = noisy.shape
        memory: PlacedMemory = precomputed
        tokens = self.position.shape[0] // self.arms
        by_arm = (
            noisy[..., self.order].reshape(batch, samples, chunk, self.arms, -1).transpose(2, 3)
        )
        queries = self.encoding.prepare(self._coordinates(noisy, memory.places), like=memory.keys)
        denoised = self._denoised(
            by_arm.reshape(batch, samples, self.arms * tokens, -1),
            level,
            [Reading(memory=one, queries=queries, values=self.values) for one in memory.blocks],
            memory.state,
            present,
        )
        together = denoised.reshape(batch, samples, self.arms, chunk, -1).transpose(2, 3)
        return together.flatten(3)[..., self.back]

    def _block(self, dim: int, conditioning_dim: int, heads: int) -> DenoiserBlock:
        return PlacedBlock(dim, conditioning_dim, heads)

    def _placed_blocks(self) -> Iterator[PlacedBlock]:
        for block in self.blocks:
            assert isinstance(block, PlacedBlock)
            yield block

    def _coordinates(self, noisy: Tensor, places: TokenPlaces) -> Tensor:
        """Returns the coordinates of the action tokens of all samples, (B, K L, axes)."""
        batch, samples, chunk, _ = noisy.shape
        tokens = self.position.shape[0] // self.arms
        grippers = places.grippers[:, None, :, None]
        if self.positions is None:
            return grippers.expand(-1, samples, -1, tokens, -1).flatten(1, 3)
        steps = noisy[..., self.positions].transpose(2, 3)
        ahead = steps.reshape(batch, samples, self.arms, tokens, chunk // tokens, 3).mean(dim=-2)
        directions = places.directions[:, None, :, None].to(ahead.dtype)
        return (grippers + (directions * ahead[..., None, :]).sum(dim=-1)).flatten(1, 3)


def _checked_order(arms: Sequence[Sequence[int]], action_dim: int) -> list[int]:
    """Returns the numbers of an action, arm by arm; each number moves one arm."""
    order = [number for arm in arms for number in arm]
    if sorted(order) != list(range(action_dim)) or len({len(arm) for arm in arms}) > 1:
        raise ValueError(
            f"The arms have {[len(arm) for arm in arms]} of {action_dim} numbers of an action; "
            f"allowed for actions with places: every number moves one arm, equally many each."
        )
    return order
