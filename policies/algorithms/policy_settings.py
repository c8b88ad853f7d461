"""Settings of policies: the entries of configurations and checkpoints.

Each kind of policy derives its dataclass from one of these;
`stringline.encoders.training.checkpoint.build` makes settings and policy from a plain
configuration. Contract and statistics, which come from the data, are separate arguments.
"""

from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Literal, get_args

from torch import nn

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.policies.action_spaces.space import (
    ActionSpace,
    ActionSpaceFactory,
    ContractActions,
)
from stringline.policies.algorithms.posture import Posture
from stringline.policies.networks.denoiser import (
    Denoiser,
    DenoiserFactory,
    TransformerDenoiser,
)
from stringline.policies.observation.interfaces import ObservationEncoderFactory
from stringline.policies.observation.normaliser import MinMaxNormaliser, NormaliserFactory


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Settings of every kind of policy.

    Attributes:
        observation_encoder: Factory of the observation encoder.
        chunk: Actions per chunk, T.
        normalisation: Factory of the normaliser of actions.
        action_space: Factory of the action space; see `policies/action_spaces`.
        gripper_space: Factory of the meaning of the grippers' numbers, such as `OpenClose`, given
            the action space `arms`; None: openings.
        posture: What the joints alone tell about a chunk, which the policy then need not learn, and
            the smooth form of chunks; None: the policy generates all actions itself.
    """

    observation_encoder: ObservationEncoderFactory
    chunk: int = 48
    normalisation: NormaliserFactory = MinMaxNormaliser
    action_space: ActionSpaceFactory = ContractActions
    gripper_space: ActionSpaceFactory | None = None
    posture: Posture | None = None

    def __post_init__(self) -> None:
        COUNT.check(chunk=self.chunk)

    def space(self, contract: Contract) -> ActionSpace:
        """Builds the action space, grippers included."""
        arms = self.action_space(contract=contract)
        return (
            arms if self.gripper_space is None else self.gripper_space(contract=contract, arms=arms)
        )


Standing = Literal["gripper", "noisy_pose"]


class ActionPlaces(nn.Module):
    """The places of action tokens in the denoiser, which reads the conditioning tokens by them."""

    def __init__(self, *, at: Standing, encoding: EncodingFactory, values: bool = True) -> None:
        """Sets the places.

        Args:
            at: `gripper`: at the measured gripper that they move; `noisy_pose`: at the noisy
                position of this gripper, which needs gripper poses as actions and changes in every
                denoising step.
            encoding: Factory of the encoding of places in cross-attention.
            values: Relative values: positions rotate values too.
        """
        super().__init__()
        if at not in get_args(Standing):
            raise unknown_name("place of actions", str(at), get_args(Standing))
        self.at = at
        self.encoding = encoding
        self.values = values


@dataclass(frozen=True, kw_only=True)
class DenoisingSettings(PolicySettings):
    """Settings of policies that generate chunks from noise.

    Attributes:
        dim: Width of the transformer denoiser.
        depth: Number of its blocks.
        heads: Number of its attention heads.
        denoiser: Factory of another denoiser, with its own sizes; None: the transformer.
        action_places: Places of the action tokens of the transformer; None: they have none.
        sampling_steps: Steps from noise to data at run time.
        draws: Noise draws per observation and training step; the observation is encoded once.
    """

    dim: int = 128
    depth: int = 3
    heads: int = 4
    denoiser: DenoiserFactory | None = None
    action_places: ActionPlaces | None = None
    sampling_steps: int = 8
    draws: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        COUNT.check(
            dim=self.dim,
            depth=self.depth,
            heads=self.heads,
            sampling_steps=self.sampling_steps,
            draws=self.draws,
        )

    def network(
        self,
        factory: DenoiserFactory | None,
        *,
        action_dim: int,
        chunk: int,
        conditioning_dim: int,
        state_dim: int = 0,
    ) -> Denoiser:
        """Builds a network over noisy chunks by a factory; None: the transformer.

        Raises:
            ValueError: The network of the factory reads no states, but there are some.
        """
        make = factory or partial(
            TransformerDenoiser, dim=self.dim, depth=self.depth, heads=self.heads
        )
        sizes = {"action_dim": action_dim, "chunk": chunk, "conditioning_dim": conditioning_dim}
        if not state_dim:
            return make(**sizes)
        if "state_dim" not in signature(make).parameters:
            raise ValueError(
                "The denoiser reads no joints beside the conditioning tokens; allowed for "
                "policy.observation_encoder.joints=condition: the transformer. Otherwise choose "
                "policy.observation_encoder.joints=tokens."
            )
        return make(**sizes, state_dim=state_dim)
