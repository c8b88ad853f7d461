"""A session whose planning an operator can interrupt."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session

_POLL_S = 0.02


class InterruptibleSession:
    """Brakes the arms at once if the operator stops them while the policy plans.

    A thread polls `stop` during a plan, and nothing else does; it has ended when the plan is
    returned. The caller drops a plan that was interrupted.

    Args:
        stop: Returns whether the operator stops the arms; called many times a second.
        brake: Brakes the arms; called at most once in a plan.
    """

    def __init__(
        self, session: Session, stop: Callable[[], bool], brake: Callable[[], None]
    ) -> None:
        self._session = session
        self._stop = stop
        self._brake = brake

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the plan for an observation."""
        planned = Event()
        with ThreadPoolExecutor(1, thread_name_prefix="keys") as pool:
            polling = pool.submit(self._poll, planned)
            try:
                chunk = self._session.plan(observation)
            finally:
                planned.set()
            polling.result()
        return chunk

    def _poll(self, planned: Event) -> None:
        while not planned.wait(_POLL_S):
            if self._stop():
                self._brake()
                return
