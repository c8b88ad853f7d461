"""While a policy plans, an operator sees the state of the arms and can stop them."""

from threading import Event

import numpy as np

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.deployment.supervised_run import InterruptibleSession


class Waiting:
    """Plans until an event."""

    def __init__(self) -> None:
        self.released = Event()

    def plan(self, observation: Observation) -> ActionChunk:
        assert self.released.wait(20.0)
        return ActionChunk(np.zeros(1), np.zeros((1, 2), np.float32))


def test_the_state_is_shown_during_a_plan_also_after_a_stop() -> None:
    policy = Waiting()
    events: list[str] = []

    def stop() -> bool:
        events.append("asked")
        return events.count("asked") == 3

    def watch() -> None:
        events.append("shown")
        if events.count("shown") == 6:
            policy.released.set()

    session = InterruptibleSession(policy, stop, lambda: events.append("braked"), watch)
    assert len(session.plan({}).time) == 1
    expected = ["asked", "shown"] * 2 + ["asked", "braked", "shown"] + ["shown"] * 3
    assert events[: len(expected)] == expected
    assert events.count("braked") == 1
    assert events.count("asked") == 3
