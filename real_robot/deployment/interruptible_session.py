"""A policy that is asked while somebody listens: who says stop does not wait for its answer."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session

_LOOK_S = 0.02


class AttentiveSession:
    """Brakes the arms as soon as somebody says stop while the policy plans; what it answers then is for others to drop.

    While it plans, a thread of its own listens, and nobody else does; when the answer is there,
    that thread has ended.

    Args:
        session: Of the policy.
        stop: Asked many times a second.
        brake: Called once at most in a plan.
    """

    def __init__(
        self, session: Session, stop: Callable[[], bool], brake: Callable[[], None]
    ) -> None:
        self._session = session
        self._stop = stop
        self._brake = brake

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers one observation."""
        answered = Event()
        with ThreadPoolExecutor(1, thread_name_prefix="keys") as ears:
            listening = ears.submit(self._listen, answered)
            try:
                chunk = self._session.plan(observation)
            finally:
                answered.set()
            listening.result()
        return chunk

    def _listen(self, answered: Event) -> None:
        while not answered.wait(_LOOK_S):
            if self._stop():
                self._brake()
                return
