"""A session whose planning an operator can interrupt."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session

_POLL_S = 0.02


class InterruptibleSession:
    """Brakes the arms at once if the operator stops them while the policy plans.

    A thread calls these functions during a plan, and nothing else does; it has ended when the plan
    is returned. The caller drops a plan that was interrupted.

    Args:
        stop: Returns whether the operator stops the arms; called many times a second.
        brake: Brakes the arms; called at most once in a plan.
        watch: Shows the state of the arms, which may change during a long plan; called many times a
            second.
    """

    def __init__(
        self,
        session: Session,
        stop: Callable[[], bool],
        brake: Callable[[], None],
        watch: Callable[[], None],
    ) -> None:
        self._session = session
        self._stop = stop
        self._brake = brake
        self._watch = watch

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
        stopped = False
        while not planned.wait(_POLL_S):
            if not stopped and self._stop():
                stopped = True
                self._brake()
            self._watch()
