"""Beats of emulated controllers on a host that is busy at times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.real_robot.emulators.program.emulator_server import Metronome

PERIOD = 0.01


def beats(stalls: list[float], *, until: float = 3.0, phase: float = 0.4) -> dict[str, list[float]]:
    """Returns the periods of each arm on a host that is busy every tenth of a second."""
    metronome, found = (
        Metronome(["left", "right"], PERIOD, phase, 0.0),
        dict[str, list[float]](left=[], right=[]),
    )
    away = {0.1 * (place + 1): length for place, length in enumerate(stalls)}
    now = 0.0
    while now < until:
        for arm in metronome.take(now):
            found[arm].append(now)
        assert metronome.next > now
        now = metronome.next
        for start in [start for start in away if now >= start]:
            now = max(now, start + away.pop(start))
    return found


def test_a_punctual_host_keeps_the_period_and_the_phase() -> None:
    found = beats([])
    assert np.allclose(np.diff(found["left"]), PERIOD)
    assert np.allclose(np.array(found["right"][:299]) - found["left"][:299], 0.4 * PERIOD)


@given(st.lists(st.floats(0.0, 0.04), max_size=10))
def test_missed_periods_are_made_up_for_with_half_a_period_for_each_answer(
    stalls: list[float],
) -> None:
    for taken in beats(stalls).values():
        assert np.diff(taken).min() >= PERIOD / 2 - 1e-9
        assert len(taken) == pytest.approx(3.0 / PERIOD, abs=1.5)


@pytest.mark.parametrize("away_s", [0.0, 0.2, 0.4, 3.0])
def test_skipped_periods_are_counted(away_s: float) -> None:
    metronome = Metronome(["left"], PERIOD, 0.0, 0.0)
    taken = 0
    skipped = 0
    now = 0.0
    while now < 5.0:
        taken += len(metronome.take(now))
        skipped += metronome.skipped["left"]
        now = metronome.next + (away_s if 1.0 <= now < 1.0 + PERIOD else 0.0)
    assert taken + skipped == pytest.approx(5.0 / PERIOD, abs=1.5)
    assert skipped == pytest.approx(max(0.0, away_s - 0.25) / PERIOD, abs=1.5)


def test_delays_beyond_a_quarter_of_a_second_are_skipped() -> None:
    for taken in beats([1.0]).values():
        assert len(taken) == pytest.approx((3.0 - 1.0 + 0.25) / PERIOD, abs=4.0)
        assert np.diff(np.sort(taken)[-20:]) == pytest.approx(np.full(19, PERIOD))
