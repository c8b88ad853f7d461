"""The safety filter keeps position, velocity and acceleration limits for any input."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.real_robot.judged_streams import UNHURRIED, Case, follow, follow_many
from tests.real_robot.random_streams import SEGMENT, STREAMS, Segment, play

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.safety.limits import REDUCED_SPEED

if TYPE_CHECKING:
    from tests.real_robot.conftest import Rig

Vector = NDArray[np.float64]

POST = {"shape": "capsule", "position": [-0.22, 0.2, 0.3], "radius": 0.05, "length": 0.6}
CELL = {"obstacles": {"post": POST}}
LIMITS = SafetyLimits.of(
    ALOHA,
    cartesian_speed=None,
    soft_start_s=0.3,
    table_clearance=0.003,
    arm_clearance=0.005,
    self_clearance=0.005,
    cell_clearance=0.005,
    cell=CELL,
)
CASES = {
    "any speed": Case(ALOHA, LIMITS, CELL),
    "reduced speed": Case(ALOHA, LIMITS, CELL).at(REDUCED_SPEED),
}
PART = 100_000  # Actions of each of the ten parts of the long test.


@pytest.mark.slow
@pytest.mark.parametrize("speed", CASES)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=UNHURRIED)
@given(stream=STREAMS)
def test_no_stream_leads_out_of_the_limits(speed: str, stream: list[Segment]) -> None:
    follow(CASES[speed], stream)


def test_limits_that_grow_between_the_check_and_the_braking_bring_nothing_nearer() -> None:
    follow(
        CASES["any speed"],
        [
            ("bang", 34538, 4, -1.682235804329714e183),
            ("old session", 1388033858, 36, 0.72),
            ("targets", 1509, 7, -1.1754943508222875e-38),
            ("targets", 132468031, 32, 3.0081960877634228e16),
            ("old session", 170165, 33, 2.1144600365485464e16),
            ("nothing", 5649142, 34, -5.844489960047986e-87),
            ("restart", 6344, 7, 0.0),
            ("targets", 273, 22, 0.032),
            ("odd chunks", 552, 39, 3.0042686690639704e16),
        ],
    )


@pytest.mark.stress
@pytest.mark.parametrize("speed", CASES)
@pytest.mark.parametrize("part", range(10))
def test_no_million_actions_lead_out_of_the_limits(
    part: int, speed: str, record_property: Callable[[str, object], None]
) -> None:
    worst = follow_many(CASES[speed], part, PART)
    record_property("says", f"part {part} at {speed}: {worst}")


class WireSink:
    """Arms on the far side of a pseudo-terminal, in lock-step."""

    def __init__(self, rig: "Rig") -> None:
        self.rig = rig

    @property
    def now(self) -> float:
        return self.rig.now

    def restart(self) -> None:
        """Waits, as an operator would, until the arms rest, and begins again."""
        self.rig.loop.brake()
        for _ in range(40):
            self.rig.cycle()
        self.rig.begin()

    def send(self, chunk: ActionChunk, *, old: bool) -> None:
        if chunk.action.shape[1] == 14:
            self.rig.send(chunk, session=self.rig.session - old)

    def cycle(self, target: Vector | None) -> None:
        assert np.isfinite(self.rig.cycle().command).all()


def over_the_wire(rig: "Rig", streams: int) -> None:
    """Sends streams of chunks over the wire and compares the received goals with the limits."""
    sink = WireSink(rig)

    @settings(
        max_examples=streams,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=UNHURRIED,
    )
    @given(st.lists(SEGMENT, min_size=1, max_size=5))
    def send_all(stream: list[Segment]) -> None:
        sink.restart()
        play(stream, sink, chunks_only=True)

    send_all()
    rig.assert_within_limits()
    for path in rig.goals():
        assert np.ptp(path, axis=0).min() > 0.1  # The arms did move.


@pytest.mark.slow
def test_no_stream_of_chunks_gets_out_of_the_limits_on_the_wire(rig: "Rig") -> None:
    over_the_wire(rig, 12)


@pytest.mark.stress
def test_no_stream_of_chunks_however_many_gets_out_of_the_limits_on_the_wire(
    make_rig: "Callable[..., Rig]", record_property: Callable[[str, object], None]
) -> None:
    rig = make_rig(LIMITS)
    over_the_wire(rig, 150)
    record_property(
        "says", f"{sum(len(path) for path in rig.goals())} goals arrived at the arms, no violation"
    )
