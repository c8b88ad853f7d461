"""The base of all learned policies: an observation encoder, its data, sessions, and batches.

The state of an episode is in its session: random numbers and past observations. So
`LearnedPolicy.plan_batch` calls the network once for the observations of several sessions, and an
episode does not depend on the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import (
    NUMBER_KEY,
    Contract,
    Observation,
    check_observation,
    instruction_of,
)
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.window_settings import WindowSettings
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import (
    AttentionMap,
    ObservationEncoderFactory,
    ObservationHistory,
    PastObservations,
    TracesAttention,
)

Generators = torch.Generator | Sequence[torch.Generator]


def normal(
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns standard normal numbers of a shape (B, ...).

    With a generator per row, each row is what its generator draws for a batch of one. If None,
    torch's global generator.

    Raises:
        ValueError: There are several generators, but not one per row.
    """
    return _drawn(torch.randn, shape, generators, device, dtype)


def uniform(
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns numbers of a shape (B, ...) from 0 to below 1; see `normal`."""
    return _drawn(torch.rand, shape, generators, device, dtype)


def _drawn(
    draw: Callable[..., Tensor],
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    if generators is None or isinstance(generators, torch.Generator):
        return draw(tuple(shape), generator=generators, device=device, dtype=dtype)
    if len(generators) != shape[0]:
        raise ValueError(
            f"There are {len(generators)} generators for {shape[0]} rows; allowed: one for all "
            f"rows, or one per row."
        )
    rows = [
        draw((1, *shape[1:]), generator=generator, device=device, dtype=dtype)
        for generator in generators
    ]
    return torch.cat(rows)


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
        """The past observations that it reads; if None, only the present."""
        return self.observation_encoder.history

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys of the contract that it reads besides those of its observation encoder."""
        return ()

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows, as `Windows.batch` with `window_settings`."""

    @abstractmethod
    def loss_weight(self, batch: Batch) -> Tensor:
        """Returns the number of elements over which the loss of a batch is a mean, a scalar."""

    @abstractmethod
    def predict(
        self, batch: Batch, generator: Generators, prefix: NormalisedPrefix | None = None
    ) -> Tensor:
        """Returns predictions for B observations, (B, ...), from which sessions make plans."""

    def normalised_prefix(self, kept: ActionPrefix, batch: Batch) -> NormalisedPrefix | None:
        """Returns an action prefix as `predict` reads it; None means predictions ignore prefixes.

        Args:
            kept: The prefix at the times of a chunk, see `ActionPrefix.aligned`.
            batch: Its observation, as a batch of one.
        """
        return None

    def session(self, seed: int) -> "LearnedSession":
        """Starts an episode; see `stringline.Policy`."""
        return LearnedSession(self, seed)

    def plan_batch(
        self,
        sessions: Sequence["LearnedSession"],
        observations: Sequence[Observation],
        prefixes: Sequence[ActionPrefix | None],
    ) -> list[ActionChunk]:
        """Returns what each session plans for its observation; the network is called once for all.

        Each session has its own random numbers, so plans equal those of `LearnedSession.plan`
        except for rounding, which depends on the number of observations. An observation with a
        prefix is predicted alone, since networks read one prefix.
        """
        prepared = [
            session.prepare(observation, prefix)
            for session, observation, prefix in zip(sessions, observations, prefixes, strict=True)
        ]
        asked = [each for each in prepared if each.batch is not None]
        together = iter(self._predictions([each for each in asked if each.kept is None]))
        plans = list[ActionChunk]()
        for each in prepared:
            prediction = None
            if each.batch is not None:
                prediction = next(together) if each.kept is None else self._predictions([each])[0]
            action = each.session.actions(each, prediction)
            plans.append(
                ActionChunk(each.time, action if each.kept is None else each.kept.enforce(action))
            )
        return plans

    def _predictions(self, prepared: Sequence["PreparedObservation"]) -> NDArray[np.float32]:
        """Returns the predictions (B, ...) for B observations without prefix, or for one."""
        batches = [each.batch for each in prepared if each.batch is not None]
        generators = [each.session.generator for each in prepared]
        if not prepared:
            return np.zeros(0, np.float32)
        if len(prepared) == 1:
            predicted = self.predict(batches[0], generators[0], prepared[0].normalised)
        else:
            stacked = {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
            predicted = self.predict(stacked, generators)
        found: NDArray[np.float32] = predicted.cpu().numpy()
        return found

    def window_settings(self) -> WindowSettings:
        """Returns what the windows of its training contain."""
        history = self.history
        return WindowSettings(
            chunk=self.chunk,
            cameras=[camera.name for camera in self.contract.cameras],
            past=() if history is None else history.steps(self.contract.control_hz),
            past_images=history is not None and history.images,
        )

    def observed(
        self, observation: Observation, past: PastObservations | None = None
    ) -> dict[str, Tensor]:
        """Returns an observation as a batch of one, on the device of the policy.

        Args:
            observation: An observation of the contract; with the key `instruction` if the policy
                needs it.
            past: The past observations of the session, to which this one is added; if None, no
                past.
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

    def attention_map(self, observation: Observation) -> AttentionMap | None:
        """Returns the attention of the arms over the patches of an observation of the contract.

        If None, its observation encoder is not one of those whose attention can be traced.
        """
        encoder = self.observation_encoder
        if not isinstance(encoder, TracesAttention):
            return None
        return encoder.attention_map(self.observed(observation))

    def check_instruction(self, text: str) -> None:
        """Raises a ValueError for an unknown text, if the policy needs instructions."""
        if (instruction := self.observation_encoder.instruction) is not None:
            instruction.number(text)


class LearnedSession:
    """One episode of a learned policy: its random numbers and its past observations.

    Attributes:
        accepts_prefix: True; policies without support of prefixes raise an error in `plan`.
        generator: The source of its random numbers.
    """

    accepts_prefix = True

    def __init__(self, policy: LearnedPolicy, seed: int) -> None:
        """Starts the episode."""
        self._policy = policy
        self.generator = torch.Generator(next(policy.parameters()).device).manual_seed(seed)
        self._past = (
            None
            if policy.history is None
            else PastObservations(policy.history, policy.observation_encoder.past_keys)
        )

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        """Plans a chunk; see `stringline.policies.chunks.chunk.PrefixSession`."""
        return self._policy.plan_batch([self], [observation], [prefix])[0]

    def prepare(
        self, observation: Observation, prefix: ActionPrefix | None
    ) -> "PreparedObservation":
        """Checks an observation, adds it to the past, and converts it to tensors."""
        policy = self._policy
        check_observation(observation, policy.contract)
        time = float(observation["time"]) + np.arange(policy.chunk) / policy.contract.control_hz
        kept = None if prefix is None else prefix.aligned(time)
        batch = normalised = None
        if self.wants_prediction(float(time[0])):
            batch = policy.observed(observation, self._past)
            normalised = None if kept is None else policy.normalised_prefix(kept, batch)
        return PreparedObservation(self, observation, time, batch, kept, normalised)

    def wants_prediction(self, time: float) -> bool:
        """Returns whether a prediction could change the plan; without one, no numbers are drawn."""
        return True

    def actions(
        self, prepared: "PreparedObservation", prediction: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Returns the planned actions (T, A), in the units of the contract.

        Args:
            prepared: The observation.
            prediction: Its row of the result of `LearnedPolicy.predict`; if None, none was needed.
        """
        assert prediction is not None
        return prediction


@dataclass(frozen=True)
class PreparedObservation:
    """An observation of a session, as `LearnedPolicy.predict` reads it.

    Attributes:
        session: The session.
        observation: The observation.
        time: (T,) times of the actions of its plan, seconds.
        batch: The observation as a batch of one; if None, no prediction is needed.
        kept: The actions of the prefix at `time`; if None, no prefix.
        normalised: The same for the network; if None, it reads no prefix.
    """

    session: LearnedSession
    observation: Observation
    time: NDArray[np.float64]
    batch: dict[str, Tensor] | None
    kept: ActionPrefix | None
    normalised: NormalisedPrefix | None
