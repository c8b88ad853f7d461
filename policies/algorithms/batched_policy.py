"""A policy whose sessions plan together, from one batch of observations."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from threading import Event, Thread
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.algorithms.learned_policy import (
    LearnedPolicy,
    LearnedSession,
    PreparedObservation,
)
from stringline.policies.chunks.chunk import ActionChunk, Policy
from stringline.policies.chunks.prefix import ActionPrefix

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
