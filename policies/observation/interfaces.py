"""The interface of observation encoders, and the conditioning tokens that they return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from stringline.datasets.contract.contract import Camera
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.policies.networks.token_places import TokenPlaces
from stringline.policies.observation.history import ObservationHistory
from stringline.policies.observation.instruction import Instruction


@dataclass(frozen=True)
class ConditioningTokens:
    """Encoded observations, which the generation of chunks is conditioned on.

    Attributes:
        tokens: (B, N, dim).
        present: (B, N) bool, False for tokens without meaning, such as those of cameras that an
            example lacks; None: all tokens are present.
        places: Places of the tokens and of the grippers; None: they have none in metres.
        arms: Number of tokens at the end that belong to the arms, one for each; 0: none does.
        state: (B, S) joints and velocities, and a mark of examples in which they are hidden, for
            networks that read them beside the tokens; None: the tokens contain the joints.
    """

    tokens: Tensor
    present: Tensor | None = None
    places: TokenPlaces | None = None
    arms: int = 0
    state: Tensor | None = None

    def clone(self) -> "ConditioningTokens":
        """Returns a copy of all tensors."""
        return ConditioningTokens(
            self.tokens.clone(),
            None if self.present is None else self.present.clone(),
            None if self.places is None else self.places.clone(),
            self.arms,
            None if self.state is None else self.state.clone(),
        )


class ObservationEncoderInterface(Protocol):
    """An encoder of observations, a `torch.nn.Module`.

    Attributes:
        dim: Width of its tokens.
        cameras: The cameras that it reads, without depth and geometry if it does not need them.
        history: The past observations that it reads; None: only the present.
        instruction: Its encoder of instructions; None: it needs no instruction.
    """

    dim: int
    cameras: tuple[Camera, ...]
    history: ObservationHistory | None
    instruction: Instruction | None

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that it reads from the present observation."""
        ...

    @property
    def past_keys(self) -> list[str]:
        """The keys of the contract that it reads from each past observation."""
        ...

    def __call__(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch: at least `keys`, each with a leading batch axis."""
        ...


def state_width(encoder: ObservationEncoderInterface) -> int:
    """Returns the numbers of `ConditioningTokens.state` of an encoder, S; 0: it returns none."""
    return int(getattr(encoder, "state_dim", 0))


@runtime_checkable
class EncoderOfPlaces(Protocol):
    """An observation encoder whose conditioning tokens have `places`."""

    def encoding_of_places(
        self, factory: EncodingFactory, *, heads: int, head_dim: int
    ) -> PositionEncoding:
        """Returns a new encoding of the coordinates of its tokens, for another network.

        Raises:
            ValueError: Its coordinates are not metric.
        """
        ...


ObservationEncoderFactory = Callable[..., ObservationEncoderInterface]
"""Makes an observation encoder, given `contract` and `statistics`."""
