"""The lateness of a loop, and the periods that a machine bears."""

import time

import numpy as np
import pytest

from stringline.real_robot.device.scheduling import LatencyMeasurement, Lateness, record_lateness
from stringline.real_robot.safety.motion_stages import STOPPED_PERIODS


def lateness(*late_ms: float, of: int = 10_000, refusal: str = "") -> Lateness:
    seconds = np.full(of, 1e-5)
    seconds[: len(late_ms)] = 1e-3 * np.array(late_ms)
    return Lateness(seconds, refusal)


def test_a_machine_bears_a_period_if_late_cycles_are_rare_and_short() -> None:
    assert lateness().shortest_period_s == 0.001
    assert lateness(*[3.0] * 10).shortest_period_s == 0.002
    assert lateness(*[3.0] * 11).shortest_period_s == 0.01  # More than a thousandth: over 2.5 ms.
    assert lateness(14.9).shortest_period_s == 0.01
    assert lateness(15.1).shortest_period_s == 0.02  # The arms would hold at 10 ms.
    assert lateness(31.0).shortest_period_s is None
    assert lateness(7.0).bears(0.007 / (STOPPED_PERIODS - 1.0) + 1e-9)


def test_without_priority_no_period_below_10_ms_is_borne() -> None:
    assert lateness(refusal="Operation not permitted").shortest_period_s == 0.01


def test_a_stop_counts_for_all_due_times_that_it_covers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by hand: the third sleep takes 10 ms longer than requested."""
    now, sleeps = 5.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, sleeps
        sleeps += 1
        now += seconds + (0.01 if sleeps == 3 else 1e-6)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    late = np.full(30, np.nan)
    record_lateness(late)
    assert late[:2] == pytest.approx(1e-6, abs=1e-8)
    assert late[2:12] == pytest.approx(np.arange(10.0, 0.0, -1.0) * 1e-3, abs=1e-5)
    assert late[13:] == pytest.approx(1e-6, abs=1e-8)


def test_a_measurement_has_a_lateness_for_every_due_time() -> None:
    with LatencyMeasurement(0.3) as measurement:
        assert measurement.result(0.0) is None
        found = measurement.result(60.0)
    assert found is not None
    assert found.seconds.shape == (300,)
    assert (found.seconds >= 0.0).all()
    assert found.quantile(0.5) < 0.3  # No statement about this machine.
