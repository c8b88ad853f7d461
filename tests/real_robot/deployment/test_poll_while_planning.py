"""While a policy plans, an operator sees the state of the arms and can stop them."""

from threading import Event

import pytest

from stringline.real_robot.deployment.supervised_run import poll_while_planning


def test_the_state_is_shown_during_a_plan_also_after_a_stop() -> None:
    released = Event()
    events: list[str] = []

    def stop() -> bool:
        events.append("asked")
        return events.count("asked") == 3

    def watch() -> None:
        events.append("shown")
        if events.count("shown") == 6:
            released.set()

    with poll_while_planning(stop, lambda: events.append("braked"), watch):
        assert released.wait(20.0)
    expected = ["asked", "shown"] * 2 + ["asked", "braked", "shown"] + ["shown"] * 3
    assert events[: len(expected)] == expected
    assert events.count("braked") == 1
    assert events.count("asked") == 3


def test_errors_of_the_policy_and_of_the_display_reach_the_caller() -> None:
    shown = Event()
    with (
        pytest.raises(OSError, match="no plan"),
        poll_while_planning(lambda: False, lambda: None, lambda: None),
    ):
        raise OSError("no plan")

    def fail() -> None:
        shown.set()
        raise OSError("no display")

    with (
        pytest.raises(OSError, match="no display"),
        poll_while_planning(lambda: False, lambda: None, fail),
    ):
        assert shown.wait(20.0)
