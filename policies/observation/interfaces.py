"""The interface of observation encoders, and the conditioning tokens that they return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from stringline.datasets.contract.contract import Camera
from stringline.policies.observation.history import ObservationHistory
from stringline.policies.observation.instruction import Instruction


@dataclass(frozen=True)
class ConditioningTokens:
    """Encoded observations, which the generation of chunks is conditioned on.

    Attributes:
        tokens: (B, N, dim).
        present: (B, N) bool, False for tokens without meaning, such as those of cameras that an
            example lacks; None: all tokens are present.
    """

    tokens: Tensor
    present: Tensor | None = None


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


ObservationEncoderFactory = Callable[..., ObservationEncoderInterface]
"""Makes an observation encoder, given `contract` and `statistics`."""
