"""The base of every learned policy: observation in, timestamped chunk of actions out, with one loss for training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.contract.instructions import NUMBER_KEY, instruction_of
from stringline.datasets.contract.validation import validate_observation
from stringline.datasets.loading.statistics import KeyStatistics, Statistics
from stringline.policies.algorithms.policy_settings import PolicySettings
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.chunks.prefix import Commitment
from stringline.policies.networks.committed import Committed
from stringline.policies.observation.history import ObservationHistory, PastObservations
from stringline.policies.observation.observation_encoder import Memory

Batch = Mapping[str, Tensor]


class ChunkPolicy(nn.Module, ABC):
    """Encodes an observation once, and generates a chunk of T actions from that memory.

    A kind of policy says how chunks are generated and trained; normalisation, tensors, padding and
    time are settled here.

    Attributes:
        memory: Encodes observations.
        contract: What it observes and how it acts.
        statistics: Of the training data, those of its action space included.
        chunk: Actions per chunk, T.
        action_space: What the numbers mean that it generates.
        action_range: Brings these numbers to the range of the network.
        contract_range: The same for actions of the contract.
    """

    def __init__(
        self, settings: PolicySettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds what all policies share.

        Args:
            settings: What is chosen about it.
            contract: What it observes and how it acts.
            statistics: Of the training data, for the ranges of joints and actions.

        Raises:
            ValueError: The memory wants a camera that the contract lacks, the action space does not
                fit the contract, or the statistics are not those of its actions or say that nothing
                ever moves.
        """
        super().__init__()
        self.memory = settings.memory(contract=contract, statistics=statistics)
        self.contract = contract.with_cameras(*self.memory.cameras)
        self.chunk = settings.chunk
        self.action_space = settings.action_space(contract=contract)
        key = self.action_space.statistics_key(self.chunk)
        measured = statistics.measured(
            key, partial(self.action_space.window_rows, self.contract.cameras, self.chunk)
        )
        self.statistics = measured.without_episodes()
        check_actions(key, self.statistics[key], self.action_space.dim)
        self.action_range = settings.normalisation(self.statistics[key])
        self.contract_range = (
            self.action_range
            if key == "action"
            else settings.normalisation(self.statistics["action"])
        )

    @property
    def action_dim(self) -> int:
        """Numbers per action that the network generates; those of the contract, or of another action space."""
        return self.action_space.dim

    @property
    def history(self) -> ObservationHistory | None:
        """Which moments of the past it looks at; None: the present alone."""
        found = getattr(self.memory, "history", None)
        return found if isinstance(found, ObservationHistory) else None

    @abstractmethod
    def chunk_loss(self, memory: Memory, action: Tensor, mask: Tensor) -> Tensor:
        """Returns the training loss.

        Args:
            memory: Of B observations.
            action: (B, T, action_dim) normalised actions.
            mask: (B, T) False beyond the end of the episode.
        """

    @abstractmethod
    def generate(
        self, memory: Memory, generator: torch.Generator, committed: Committed | None = None
    ) -> Tensor:
        """Returns normalised chunks, (B, T, action_dim).

        Args:
            memory: Of B observations.
            generator: The only source of random numbers, on the memory's device.
            committed: Actions that the chunks have to keep to; None: all are free.

        Raises:
            ValueError: The committed actions have another shape than the chunks, or this kind of
                policy cannot keep to any.
        """

    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows: contract keys with a batch axis, `action` (B, T, A), `action_mask` (B, T)."""
        return self.chunk_loss(
            self.memory(batch),
            self.normalised(batch["action"].float(), batch),
            batch["action_mask"],
        )

    def normalised(self, action: Tensor, batch: Batch) -> Tensor:
        """Returns actions (B, T, A) of the contract as the network generates them, (B, T, action_dim).

        Args:
            action: In the units of the contract.
            batch: Contract keys with a batch axis, of the observations that the actions answer.
        """
        return self.action_range.normalise(self.action_space.encode(action, batch))

    @torch.no_grad()
    def decided(self, kept: Commitment, batch: Batch) -> Committed:
        """Returns what is decided as the network sees it: in the action space of this policy, and normalised.

        Args:
            kept: On the times of a chunk, see `Commitment.on`.
            batch: As for `normalised`, of the one observation that the chunk answers.

        Raises:
            ValueError: The actions are not those of the contract.
        """
        if kept.action.shape[1] != len(self.contract.action):
            dims = len(self.contract.action)
            raise ValueError(
                f"Committed actions have {kept.action.shape[1]} entries; those of the contract "
                f"have {dims}."
            )
        device = next(self.parameters()).device
        weight = torch.tensor(kept.weight, dtype=torch.float32, device=device)
        if not kept.weight.any():  # Then there need not be actions that mean anything either.
            return Committed(torch.zeros(1, self.chunk, self.action_dim, device=device), weight)
        return Committed(
            self.normalised(torch.tensor(kept.action, device=device)[None], batch), weight
        )

    @torch.inference_mode()
    def predict(
        self, batch: Batch, generator: torch.Generator, committed: Committed | None = None
    ) -> Tensor:
        """Returns chunks in the units of the contract, (B, T, A), for contract keys with a batch axis; see `generate`."""
        generated = self.action_range.restore(
            self.generate(self.memory(batch), generator, committed).float()
        )
        return self.action_space.decode(generated, batch)

    def observed(
        self, observation: Observation, past: PastObservations | None = None
    ) -> dict[str, Tensor]:
        """Returns an observation as a batch of one, on the device of the policy.

        Args:
            observation: Of the contract; with the key `instruction` where the policy has to be told
                what to do.
            past: What its session has seen before; this observation is added. None: nothing, all of
                the past is absent.

        Raises:
            ValueError: The instruction is missing, or not known; or the observation is older than
                the past.
        """
        needed = dict.fromkeys((*self.memory.keys, *self.action_space.reads))
        arrays: dict[str, NDArray[Any]] = {key: np.asarray(observation[key]) for key in needed}
        if self.history is not None:
            arrays |= (past or PastObservations(self.history, self.memory.past_keys)).before(
                observation
            )
        if (instruction := getattr(self.memory, "instruction", None)) is not None:
            arrays[NUMBER_KEY] = np.asarray(instruction.number(instruction_of(observation)))
        device = next(self.parameters()).device
        return {key: torch.tensor(array, device=device)[None] for key, array in arrays.items()}

    def check_instruction(self, text: str) -> None:
        """Finds out whether it can be told a text; who needs no telling can be told anything.

        Raises:
            ValueError: It does not know it.
        """
        if (instruction := getattr(self.memory, "instruction", None)) is not None:
            instruction.number(text)

    def session(self, seed: int) -> "ChunkSession":
        """Starts an episode; see `stringline.Policy`."""
        return ChunkSession(self, seed)


class ChunkSession:
    """One episode of a chunk policy.

    Attributes:
        commits: True; a kind of policy that cannot keep to what is decided refuses the question.
    """

    commits = True

    def __init__(self, policy: ChunkPolicy, seed: int) -> None:
        """Seeds the only source of random numbers."""
        self._policy = policy
        self._generator = torch.Generator(next(policy.parameters()).device).manual_seed(seed)
        self._past = (
            None
            if policy.history is None
            else PastObservations(policy.history, policy.memory.past_keys)
        )

    def plan(self, observation: Observation, committed: Commitment | None = None) -> ActionChunk:
        """Answers one observation; see `stringline.policies.chunks.prefix.CommittingSession`.

        Raises:
            ValueError: The observation does not fit the contract; with a history, also one that is
                not later than the one before; with instructions, also one that does not say what to
                do, or asks for something unknown. Something is decided for a time that the chunk
                does not reach, or this kind of policy cannot keep to anything.
        """
        policy = self._policy
        validate_observation(observation, policy.contract)
        time = float(observation["time"]) + np.arange(policy.chunk) / policy.contract.control_hz
        kept = None if committed is None else committed.on(time)
        batch = policy.observed(observation, self._past)
        decided = None if kept is None else policy.decided(kept, batch)
        action = policy.predict(batch, self._generator, decided)[0].cpu().numpy()
        planned = cast("np.ndarray[tuple[int, int], np.dtype[np.float32]]", action)
        return ActionChunk(time=time, action=planned if kept is None else kept.settle(planned))


def check_actions(key: str, statistics: KeyStatistics, dim: int) -> None:
    """Refuses statistics from which no range of actions follows.

    A single channel that never changes is no mistake: one arm may rest in a whole data set, and its
    normaliser has a floor.

    Args:
        key: Of the statistics.
        statistics: Of the actions.
        dim: Numbers per action.

    Raises:
        ValueError: They are of another number of dimensions, not finite, or without any range.
    """
    if len(statistics.min) != dim:
        raise ValueError(
            f"The statistics of {key!r} have {len(statistics.min)} dimensions; actions have {dim}."
        )
    if not all(
        np.isfinite(values).all()
        for values in (statistics.min, statistics.max, statistics.mean, statistics.std)
    ):
        raise ValueError(
            f"The statistics of {key!r} are not finite; some action in the data is NaN or infinite."
        )
    if not (statistics.max > statistics.min).any():
        always = np.round(statistics.min, 4).tolist()
        raise ValueError(
            f"The statistics of {key!r} have zero range in each of the {dim} dimensions (always "
            f"{always}): nothing ever moves "
            "in the data, so there is nothing to learn."
        )
