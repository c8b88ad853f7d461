"""What is chosen about a policy: the entries of its configuration, which its checkpoint keeps.

Each kind adds its own by a dataclass derived from one of these;
`stringline.encoders.training.checkpoint.build` makes both, settings and policy, of a plain
configuration. What a policy is told of the data, contract and statistics, comes beside them.
"""

from dataclasses import dataclass
from functools import partial

from stringline.datasets.contract.arguments import COUNT
from stringline.policies.action_spaces.space import ActionSpaceFactory, ContractActions
from stringline.policies.networks.denoiser import Denoiser, DenoiserFactory, TransformerDenoiser
from stringline.policies.observation.normaliser import MinMaxNormaliser, NormaliserFactory
from stringline.policies.observation.observation_encoder import MemoryFactory


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """What is chosen about every kind of policy.

    Attributes:
        memory: Makes the observation encoder for a contract.
        chunk: Actions per chunk, T.
        normalisation: How actions are brought to the range of the network.
        action_space: What the numbers that are generated mean; see `policies/action_spaces`.
    """

    memory: MemoryFactory
    chunk: int = 48
    normalisation: NormaliserFactory = MinMaxNormaliser
    action_space: ActionSpaceFactory = ContractActions

    def __post_init__(self) -> None:
        """Checks what can be checked without data.

        Raises:
            ValueError: A number is out of its range, or a name does not exist.
        """
        COUNT.check(chunk=self.chunk)


@dataclass(frozen=True, kw_only=True)
class DenoisingSettings(PolicySettings):
    """What is chosen about policies that make chunks of noise.

    Attributes:
        dim: Width of the transformer denoiser.
        depth: Its blocks.
        heads: Its attention heads.
        denoiser: Makes another denoiser, which has its own sizes; None: that transformer.
        sampling_steps: Steps from noise to data at run time.
        draws: Noise draws per observation and training step; the observation is encoded once for
            all of them.
    """

    dim: int = 128
    depth: int = 3
    heads: int = 4
    denoiser: DenoiserFactory | None = None
    sampling_steps: int = 8
    draws: int = 4

    def __post_init__(self) -> None:
        """See the base."""
        super().__post_init__()
        COUNT.check(
            dim=self.dim,
            depth=self.depth,
            heads=self.heads,
            sampling_steps=self.sampling_steps,
            draws=self.draws,
        )

    def network(
        self, recipe: DenoiserFactory | None, *, action_dim: int, memory_dim: int
    ) -> Denoiser:
        """Makes a network over noisy chunks.

        Args:
            recipe: Of another one; None: the transformer.
            action_dim: Numbers per action.
            memory_dim: Width of the memory's tokens.

        Raises:
            ValueError: A size does not divide.
        """
        make = recipe or partial(
            TransformerDenoiser, dim=self.dim, depth=self.depth, heads=self.heads
        )
        return make(action_dim=action_dim, chunk=self.chunk, memory_dim=memory_dim)
