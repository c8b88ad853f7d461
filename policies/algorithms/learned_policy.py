"""The base of all learned policies: an observation encoder, its data, sessions, and batches.

Sessions draw random numbers from one generator, or from one for each row of a batch, so that an
episode does not depend on the others. `BatchedPolicy` plans for several sessions together, from
one batch of observations.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from threading import Event, Thread
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.contract.instructions import NUMBER_KEY, instruction_of
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import WindowSettings
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix, Policy, PrefixSession
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import (
    ObservationEncoderFactory,
    ObservationHistory,
    PastObservations,
)

Generators = torch.Generator | Sequence[torch.Generator]


def normal(
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns standard normal numbers of a shape (B, ...).

    With a generator per row, each row is what its generator draws for a batch of one. None: torch's
    global generator.

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
        """The past observations that it reads; None: only the present."""
        return self.observation_encoder.history

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys of the contract that it reads besides those of its observation encoder."""
        return ()

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows, as `Windows.batch` with `window_settings`."""

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


ResultT = TypeVar("ResultT")


class BatchedPolicy:
    """A chunk policy that answers several observations at once, such as those of many worlds.

    Each session has its own random numbers, as without batches. Results differ by rounding only,
    which depends on the number of observations in a batch.

    Attributes:
        size: Largest number of observations in a batch.
    """

    def __init__(self, policy: LearnedPolicy, size: int) -> None:
        """Wraps a policy; `size` is at least 1."""
        COUNT.check(plan_batch=size)
        self._policy = policy
        self.size = size

    @property
    def contract(self) -> Contract:
        """The contract of the policy."""
        return self._policy.contract

    def check_instruction(self, text: str) -> None:
        """Raises a ValueError for an unknown text; see `LearnedPolicy.check_instruction`."""
        self._policy.check_instruction(text)

    def session(self, seed: int) -> "BatchedSession":
        """Starts an episode of the policy."""
        return BatchedSession(self._policy.session(seed))

    def together(self, calls: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
        """Runs calls that each plan with a session of this policy; returns their results.

        The calls may plan indirectly, such as through an `Execution`. Each runs in a thread until
        it has prepared its observation; then this thread predicts all chunks, and the calls go on.
        Only one of these threads computes at a time. The first plan of a call is in the batch, if
        it has no action prefix and wants a prediction; other plans are predicted alone.

        Raises:
            Exception: The first error of a call.
        """
        if len(calls) == 1:
            return [calls[0]()]
        begun = [_Call(call) for call in calls]
        for call in begun:
            call.run_until_prepared()
        parked = [call for call in begun if call.prepared is not None]
        try:
            actions = self._predict([call.prepared for call in parked if call.prepared])
        except BaseException as error:
            for call in parked:
                call.go_on(error)
            raise
        for call, action in zip(parked, actions, strict=True):
            call.go_on(action)
            call.wait()
        return [call.result() for call in begun]

    def _predict(self, prepared: Sequence[PreparedObservation]) -> NDArray[np.float32]:
        """Returns the actions (B, T, A) of prepared observations."""
        if not prepared:
            return np.zeros((0, 0, 0), np.float32)
        batch = _stacked([one.batch for one in prepared])
        generators = [one.generator for one in prepared]
        actions: NDArray[np.float32] = self._policy.predict(batch, generators).cpu().numpy()
        return actions


class BatchedSession:
    """One episode of a `BatchedPolicy`.

    Attributes:
        accepts_prefix: As that of the policy's session.
    """

    accepts_prefix = True

    def __init__(self, session: LearnedSession) -> None:
        self._session = session

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        """Plans a chunk; inside of `BatchedPolicy.together`, with those of the other calls."""
        call = _running.get()
        if call is None or call.prepared is not None or prefix is not None:
            return self._session.plan(observation, prefix)
        prepared = self._session.prepare(observation)
        if not prepared.wants_prediction:
            return prepared.chunk(None)
        return prepared.chunk(call.park(prepared))


def batched(policy: Policy, size: int) -> BatchedPolicy | None:
    """Returns a policy that plans in batches of up to `size`; None for 1.

    Raises:
        ValueError: `size` is below 1, or above 1 with a policy on a server.
    """
    COUNT.check(plan_batch=size)
    if size == 1:
        return None
    if not isinstance(policy, LearnedPolicy):
        raise ValueError(
            f"plan_batch is {size} with a policy on a server, which answers one observation at a "
            f"time; allowed: 1, or a checkpoint of this machine."
        )
    return BatchedPolicy(policy, size)


class _Call(Generic[ResultT]):
    """A call in a thread that stops where it needs the actions of a prepared observation.

    Attributes:
        prepared: The observation; None before, and if the call ends without planning.
    """

    def __init__(self, function: Callable[[], ResultT]) -> None:
        self._function = function
        self._future = Future[ResultT]()
        self._parked = Event()
        self._answered = Event()
        self._answer: NDArray[np.float32] | BaseException | None = None
        self.prepared: PreparedObservation | None = None

    def run_until_prepared(self) -> None:
        """Starts the thread, and waits until it has prepared an observation or ended."""
        Thread(target=self._run, daemon=True).start()
        self._parked.wait()

    def park(self, prepared: PreparedObservation) -> NDArray[np.float32]:
        """Waits, in the thread of the call, for the actions (T, A) of an observation."""
        self.prepared = prepared
        self._parked.set()
        self._answered.wait()
        if isinstance(self._answer, BaseException):
            raise RuntimeError("The batch of this observation failed.") from self._answer
        assert self._answer is not None
        return self._answer

    def go_on(self, answer: NDArray[np.float32] | BaseException) -> None:
        """Lets a parked call go on with its actions (T, A), or end with an error."""
        self._answer = answer
        self._answered.set()

    def wait(self) -> None:
        """Waits for the end of the call."""
        self._future.exception()

    def result(self) -> ResultT:
        """Returns the result of the call, or raises its error."""
        return self._future.result()

    def _run(self) -> None:
        _running.set(self)
        try:
            self._future.set_result(self._function())
        # Any error, so that the waiting thread gets it.
        except BaseException as error:
            self._future.set_exception(error)
        finally:
            self._parked.set()


_running: ContextVar["_Call[Any] | None"] = ContextVar("running", default=None)


def _stacked(batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Joins batches with the same keys along their first axis."""
    return {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
