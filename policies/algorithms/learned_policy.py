"""The base of all learned policies: an observation encoder, its data, and its sessions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.contract.instructions import NUMBER_KEY, instruction_of
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.row_noise import Generators
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.chunks.prefix import ActionPrefix, PrefixSession
from stringline.policies.networks.normalised_prefix import NormalisedPrefix
from stringline.policies.observation.history import ObservationHistory, PastObservations
from stringline.policies.observation.interfaces import ObservationEncoderFactory

Batch = Mapping[str, Tensor]


class LearnedPolicy(nn.Module, ABC):
    """Encodes an observation once and plans from its conditioning tokens.

    Attributes:
        observation_encoder: Encodes observations.
        contract: Contract of its observations and actions.
        statistics: Statistics of the training data.
        chunk: Actions per plan, T.
    """

    chunk: int

    def __init__(
        self,
        observation_encoder: ObservationEncoderFactory,
        contract: Contract,
        statistics: Statistics,
    ) -> None:
        """Builds the observation encoder.

        Raises:
            ValueError: A camera is missing in the contract, or the encoder does not fit it.
        """
        super().__init__()
        self.observation_encoder = observation_encoder(contract=contract, statistics=statistics)
        self.contract = contract.with_cameras(*self.observation_encoder.cameras)
        self.statistics = statistics

    @property
    def history(self) -> ObservationHistory | None:
        """The past observations that it reads; None: only the present."""
        return self.observation_encoder.history

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys of the contract that it reads besides those of its observation encoder."""
        return ()

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows, as `Windows.batch` with `window_inputs`."""

    @abstractmethod
    def counted_actions(self, batch: Batch) -> Tensor:
        """Returns the number of elements over which the loss of a batch is a mean, a scalar."""

    @abstractmethod
    def predict(
        self, batch: Batch, generator: Generators, prefix: NormalisedPrefix | None = None
    ) -> Tensor:
        """Returns predictions for B observations, (B, ...), from which sessions make plans."""

    @abstractmethod
    def session(self, seed: int) -> "LearnedSession":
        """Starts an episode; see `stringline.Policy`."""

    def window_inputs(self) -> dict[str, Any]:
        """Returns the arguments of `Windows` that decide what a window contains."""
        history = self.history
        return {
            "chunk": self.chunk,
            "cameras": [camera.name for camera in self.contract.cameras],
            "past": () if history is None else history.steps(self.contract.control_hz),
            "past_images": history is not None and history.images,
        }

    def observed(
        self, observation: Observation, past: PastObservations | None = None
    ) -> dict[str, Tensor]:
        """Returns an observation as a batch of one, on the device of the policy.

        Args:
            observation: An observation of the contract; with the key `instruction` if the policy
                needs it.
            past: The past observations of the session, to which this one is added; None: no past.
        """
        needed = dict.fromkeys((*self.observation_encoder.keys, *self.state_keys))
        for key in needed:
            if key not in observation:
                raise unknown_name("observation key", key, observation)
        arrays: dict[str, NDArray[Any]] = {key: np.asarray(observation[key]) for key in needed}
        if self.history is not None:
            arrays |= (
                past or PastObservations(self.history, self.observation_encoder.past_keys)
            ).before(observation)
        if (instruction := self.observation_encoder.instruction) is not None:
            arrays[NUMBER_KEY] = np.asarray(instruction.number(instruction_of(observation)))
        device = next(self.parameters()).device
        return {key: torch.tensor(array, device=device)[None] for key, array in arrays.items()}

    def check_instruction(self, text: str) -> None:
        """Raises a ValueError for an unknown text, if the policy needs instructions."""
        if (instruction := self.observation_encoder.instruction) is not None:
            instruction.number(text)


class LearnedSession(PrefixSession, Protocol):
    """A session whose plans can be predicted together with those of other sessions."""

    def prepare(
        self, observation: Observation, prefix: ActionPrefix | None = None
    ) -> "PreparedObservation":
        """Checks an observation and converts it to tensors."""
        ...


class PreparedObservation(Protocol):
    """An observation of a session, as `LearnedPolicy.predict` reads it.

    Attributes:
        batch: The observation as a batch of one.
        generator: Generator of the session.
    """

    @property
    def batch(self) -> dict[str, Tensor]:
        """The observation as a batch of one."""
        ...

    @property
    def generator(self) -> torch.Generator:
        """The generator of the session."""
        ...

    @property
    def wants_prediction(self) -> bool:
        """Whether a prediction could change the plan; if not, the session draws no numbers."""
        ...

    def chunk(self, prediction: NDArray[np.float32] | None) -> ActionChunk:
        """Returns the plan of a row of the result of `predict`; None: of no prediction."""
        ...
