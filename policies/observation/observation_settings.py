"""What is chosen about the memories of policies: the entries of their configurations."""

from collections.abc import Sequence
from dataclasses import dataclass

from stringline.datasets.contract.arguments import COUNT, SHARE, WHOLE
from stringline.datasets.contract.contract import Camera, Contract
from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.vision.depth_inputs import DepthInput
from stringline.encoders.vision.patches import ConvolutionalStem, EmbeddingFactory
from stringline.policies.observation.history import ObservationHistory
from stringline.policies.observation.instruction import InstructionFactory
from stringline.policies.observation.normaliser import MinMaxNormaliser, NormaliserFactory


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """What is chosen about every memory.

    Attributes:
        cameras: Names of the cameras to look through; None: all of the contract.
        normalisation: How joint positions are brought to the range of the network.
    """

    cameras: Sequence[str] | None = None
    normalisation: NormaliserFactory = MinMaxNormaliser

    def choose(self, contract: Contract) -> tuple[Camera, ...]:
        """Returns the cameras to look through.

        Raises:
            ValueError: One of them does not exist.
        """
        return (
            contract.cameras
            if self.cameras is None
            else tuple(contract.camera(name) for name in self.cameras)
        )


@dataclass(frozen=True, kw_only=True)
class ObservationSettings(MemorySettings):
    """What is chosen about an `ObservationMemory`.

    Attributes:
        encoding: How places enter attention.
        coordinates: What a place is.
        depth_input: What the network sees of depth, besides places; None: nothing.
        embedding: Makes a token of each patch.
        values: Relative values: places turn the values too.
        dim: Width of the tokens.
        depth: Number of blocks.
        heads: Attention heads; `dim` must divide into heads of even size.
        share_layers: One encoding for all blocks, or one for each.
        registers: Learned tokens without a place that nobody but the others sees; see
            `VisionTransformer`.
        joint_dropout: Share of the training examples whose joint state is hidden. In most frames of
            a demonstration the joints give away where the arm is going, and a policy that reads it
            there does not learn to look.
        history: Which moments of the past to look at; None: the present alone.
        instruction: Makes tokens of what is asked for; None: nothing is asked.
    """

    encoding: EncodingFactory
    coordinates: Coordinates
    depth_input: DepthInput | None = None
    embedding: EmbeddingFactory = ConvolutionalStem
    values: bool = True
    dim: int = 128
    depth: int = 4
    heads: int = 4
    share_layers: bool = True
    registers: int = 0
    joint_dropout: float = 0.0
    history: ObservationHistory | None = None
    instruction: InstructionFactory | None = None

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            ValueError: The width does not divide, or a number is out of its range.
        """
        COUNT.check(depth=self.depth)
        WHOLE.check(registers=self.registers)
        SHARE.check(joint_dropout=self.joint_dropout)
        check_heads(self.dim, self.heads)


def check_heads(dim: int, heads: int) -> None:
    """Checks that tokens divide into attention heads of even size.

    Raises:
        ValueError: They do not, or a number is none.
    """
    COUNT.check(dim=dim, heads=heads)
    if dim % (2 * heads):
        raise ValueError(f"dim is {dim} with {heads} heads; allowed: multiples of {2 * heads}.")
