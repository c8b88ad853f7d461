"""A person takes over from a policy on the page: no jumps, hold-to-run, marks, labels and rates."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.sim.teleop.visitor import Visitor

from stringline import ActionChunk, TaskEnvironment, pose
from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.execution.execution import Execution
from stringline.policies.remote.protocol import RemoteError
from stringline.sim.collect import open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.evaluation.results import attempts_table
from stringline.sim.replay import replay_episode
from stringline.sim.statistics.intervals import Attempt, rates_alone
from stringline.sim.teleop.page import Page
from stringline.sim.teleop.page_server import close_server, open_server
from stringline.sim.teleop.taking_over import HELD_S, ActingPolicy, HoldToRun
from stringline.sim.teleop.teleop_session import Phase, StopConditions, TakeRecorder, TeleopSession

RECIPE = Recipe(varied=False, cameras=(), control_hz=50.0)
HZ = 50.0


class Swinging:
    """A policy that swings the first joint about its home pose, and may fail."""

    def __init__(self, contract: Contract, home: np.ndarray) -> None:
        self.contract = contract
        self._home = home
        self.away = False

    def session(self, seed: int) -> "Swinging":
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        if self.away:
            raise RemoteError("The server is away.")
        due = float(observation["time"]) + np.arange(10) / HZ
        way = np.tile(self._home, (10, 1))
        way[:, 0] += 0.1 * np.sin(2.0 * due)
        return ActionChunk(due, way.astype(np.float32))


@pytest.fixture(scope="module")
def world() -> Iterator[TaskEnvironment]:
    world = open_recipe_world(RECIPE)
    assert isinstance(world, TaskEnvironment)
    yield world
    world.close()


@pytest.fixture
def policy(world: TaskEnvironment) -> Swinging:
    return Swinging(world.contract, world.embodiment.home)


@pytest.fixture
def session(world: TaskEnvironment, policy: Swinging, tmp_path: Path) -> TeleopSession:
    text = world.task.instruction
    recorder = TakeRecorder(tmp_path / "store", RECIPE, world.contract, text, world.task.stages)
    acting = ActingPolicy(policy, Execution(), 5, text)
    return TeleopSession(
        world, recorder, {}, 3, stop_conditions=StopConditions(end_on_success=False), policy=acting
    )


def lead(session: TeleopSession, steps: int = 8, *, held: bool = True) -> None:
    """Takes over and moves the left gripper up, for as long as the key is held."""
    session.take_over()
    target = session.steering.targets["left"]
    session.steering.aim("left", pose(target[:3, 3] + (0.03, 0.0, 0.04), target[:3, :3]))
    for _ in range(steps):
        if held:
            session.held.press()
        session.tick()


def act(session: TeleopSession, steps: int = 7) -> None:
    for _ in range(steps):
        session.tick()


def test_twenty_takeovers_and_returns_make_no_jump_and_the_episode_replays(
    session: TeleopSession, world: TaskEnvironment
) -> None:
    session.record()
    act(session)
    for _ in range(20):
        lead(session)
        session.give_back()
        act(session)
    episode = session.recorder.store.episode(session.keep())
    marks = episode.attributes.interventions
    assert marks == [(7 + 15 * number, 15 + 15 * number) for number in range(20)]
    actions = episode.arrays["action"].astype(np.float64)
    assert (np.abs(np.diff(actions, axis=0)) * HZ <= world.embodiment.velocity_limits + 1e-3).all()
    assert np.ptp(actions[:, 1]) > 0.05  # The person has moved the arm.
    assert replay_episode(episode).difference == 0.0


def test_arms_move_only_while_the_key_is_held(session: TeleopSession) -> None:
    session.record()
    act(session)
    lead(session, held=False)
    stands = session.steering.q.copy()
    session.held.press()  # A single press does not count.
    act(session)
    np.testing.assert_array_equal(session.steering.q, stands)
    lead(session)
    assert np.abs(session.steering.q - stands).max() > 0.01


def test_a_key_is_held_from_its_second_message_until_they_end() -> None:
    now = 0.0
    held = HoldToRun(lambda: now)
    assert not held.held
    for at, expected in ((1.0, False), (1.1, True), (1.1 + HELD_S, True), (2.0, False)):
        now = at
        held.press()
        assert held.held is expected, at
    now += HELD_S + 0.01
    assert not held.held


def test_arms_hold_when_the_policy_fails_and_the_take_stays(
    session: TeleopSession, policy: Swinging
) -> None:
    session.record()
    act(session)
    policy.away = True
    act(session, 6)
    assert session.by_hand
    assert "The server is away. The arms hold" in session.notice
    stands = session.steering.q.copy()
    act(session)
    np.testing.assert_array_equal(session.steering.q, stands)
    policy.away = False
    session.give_back()
    act(session)
    assert session.recorder.steps == 27
    assert session.recorder.store.episode(session.keep()).attributes.interventions == [(10, 20)]


def test_without_a_take_arms_hold_and_nobody_can_take_over(session: TeleopSession) -> None:
    stands = session.steering.q.copy()
    act(session)
    np.testing.assert_array_equal(session.steering.q, stands)
    with pytest.raises(ValueError, match="press Record first"):
        session.take_over()
    session.record()
    with pytest.raises(ValueError, match="nobody has taken over"):
        session.give_back()
    with pytest.raises(ValueError, match="A take is open"):
        session.instruct("another")


def test_labels_and_the_rates_of_the_policy_alone(session: TeleopSession) -> None:
    for success, helped in ((True, False), (True, True), (False, False), (None, False)):
        session.record()
        act(session)
        if helped:
            lead(session)
        episode = session.recorder.store.episode(session.keep(success))
        assert episode.attributes.success is bool(success)
    assert session.phase is Phase.FREE
    (rate,) = rates_alone(session.attempts).values()
    assert (rate.successes, rate.trials) == (1, 4)
    assert attempts_table(session.attempts).splitlines()[1].split()[-6:-3] == ["4", "1", "25"]
    assert not rates_alone([Attempt("x", None, False)])


@pytest.mark.slow
def test_a_visitor_takes_over_by_a_key_and_its_loss_stops_the_arms(session: TeleopSession) -> None:
    server = open_server("127.0.0.1", 0)
    page = Page(server, session)

    deadline = time.monotonic() + 60.0

    def tick() -> bool:
        assert time.monotonic() < deadline
        page.poll()
        session.tick(watched=page.watched)
        page.show()
        return True

    try:
        with Visitor(server.get_port()) as visitor:
            while not page.watched:
                tick()
            visitor.click("Record")
            while session.phase is not Phase.RECORDING:
                tick()
            visitor.hold_key("Lead", lambda: tick() and not (session.by_hand and session.held.held))
            target = session.steering.targets["left"]
            place = tuple(float(x) for x in target[:3, 3] + (0.0, 0.0, 0.05))
            visitor.drag("/handles/left", place, (1.0, 0.0, 0.0, 0.0))
            before = session.steering.q.copy()
            moved = [0.0]

            def moves() -> bool:
                tick()
                moved.append(float(np.abs(session.steering.q - before).max()))
                return moved[-1] < 0.02

            visitor.hold_key("Lead", moves)
        while session.held.held:
            tick()
        stands = session.steering.q.copy()
        act(session, 10)
        np.testing.assert_array_equal(session.steering.q, stands)
        assert session.by_hand  # The policy does not continue by itself.
    finally:
        close_server(server)
