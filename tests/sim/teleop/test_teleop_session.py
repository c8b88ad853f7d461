"""Takes become reproducible episodes or are discarded, for any buttons and failures."""

import errno
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stringline import EpisodeAttributes, EpisodeStore, TaskEnvironment, pose
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.sim import replay as episode_replay
from stringline.sim.collect import open_recipe_world
from stringline.sim.collection.collection_state import Collection, Recipe
from stringline.sim.replay import recorded_world, replay_episode
from stringline.sim.teleop.gamepad import GamepadCommand, GamepadControl
from stringline.sim.teleop.teleop_session import Phase, StopConditions, TakeRecorder, TeleopSession

RECIPE = Recipe(varied=False, cameras=("overhead",), image_size=16, options={"table_height": 0.02})


@pytest.fixture(scope="module")
def world() -> Iterator[TaskEnvironment]:
    world = open_recipe_world(RECIPE)
    assert isinstance(world, TaskEnvironment)
    yield world
    world.close()


@pytest.fixture
def session(world: TaskEnvironment, tmp_path: Path) -> TeleopSession:
    recorder = TakeRecorder(
        tmp_path / "store", RECIPE, world.contract, world.task.instruction, world.task.stages
    )
    return TeleopSession(world, recorder, RECIPE.options, seed=3)


def work(session: TeleopSession, steps: int = 12) -> None:
    """Moves an arm down and closes its gripper, from the current state on."""
    target = session.steering.targets["left"]
    session.steering.aim("left", pose(target[:3, 3] + (0.02, 0.0, -0.05), target[:3, :3]))
    session.steering.grip("left", 0.5)
    for _ in range(steps):
        session.tick()


def test_steering_begins_where_the_arms_start(world: TaskEnvironment, tmp_path: Path) -> None:
    recorder = TakeRecorder(
        tmp_path / "store", RECIPE, world.contract, world.task.instruction, world.task.stages
    )
    session = TeleopSession(world, recorder, {"start_spread": 1.0}, seed=3)
    np.testing.assert_array_equal(session.steering.q, world.start)
    assert np.abs(world.start - world.embodiment.home).max() > 0.05


def test_a_kept_take_is_a_reproducible_episode(session: TeleopSession) -> None:
    """To the last bit, although the arms were elsewhere at the start."""
    work(session)
    session.record()
    assert session.phase is Phase.RECORDING
    work(session, 30)
    name = session.keep()
    assert session.phase is Phase.FREE
    assert (session.seed, session.recorder.kept) == (4, [name])
    assert session.notice == f"Kept {name}: 0.6 s, no success."
    episode = session.recorder.store.episode(name)
    assert session.recorder.store.verify(name) == []
    attributes, arrays = episode.attributes, episode.arrays
    assert (attributes.task, attributes.seed, attributes.success) == ("hand_over_banana", 3, False)
    assert attributes.source == "teleoperation"
    assert attributes.instruction == session.world.task.instruction
    assert recorded_world(episode) == RECIPE
    np.testing.assert_allclose(arrays["time"], np.arange(30) / 50)
    assert len(arrays["rgb/overhead"]) == 8  # 30 steps with an image at every fourth.
    assert arrays["joints/position"][-1, 6] > arrays["joints/position"][0, 6] + 0.3
    replay = replay_episode(episode)
    assert (replay.steps, replay.difference, replay.final_difference) == (30, 0.0, 0.0)
    assert (replay.success, replay.stage) == (False, arrays["stage"][-1])


def test_a_take_stores_what_its_episode_has_drawn(session: TeleopSession) -> None:
    session.options = {"dim_light": [0.1, 0.9]}
    session.record()
    work(session)
    episode = session.recorder.store.episode(session.keep())
    assert 0.1 < episode.attributes.extra["drawn"]["dim_light"] < 0.9


def test_the_command_that_replays(
    session: TeleopSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session.record()
    work(session, 5)
    name = session.keep()
    store = session.recorder.store
    monkeypatch.setattr(
        sys, "argv", ["stringline-replay", f"store={store.path}", "episode=hand_over"]
    )
    episode_replay.main()
    assert capsys.readouterr().out == (
        f"{name}: replayed 5 steps. The states differ by at most 0, by 0 at the end. "
        "Outcome: failure (stage 0); recorded: failure.\n"
    )
    episode = store.episode(name)
    recipe = episode.attributes.extra["recipe"]
    for extra, complaint in (
        ({}, r"\(source 'teleoperation'\) does not describe its simulated world"),
        ({"recipe": {**recipe, "gravity": 1}}, "has settings that this version does not know"),
    ):
        other = store.write(episode.arrays, replace(episode.attributes, extra=extra))
        with pytest.raises(ValueError, match=complaint):
            recorded_world(store.episode(other))
    without = {
        "recipe": {
            key: value for key, value in recipe.items() if key not in ("cameras", "robot_model")
        }
    }
    old = store.write(episode.arrays, replace(episode.attributes, extra=without))
    assert recorded_world(store.episode(old)) == replace(RECIPE, cameras=None)


def test_success_ends_a_take_and_is_written_down(
    session: TeleopSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world continues, but later success does not change the take."""
    session.record()
    work(session, 4)
    monkeypatch.setattr(
        type(session.world.task), "after_step", lambda task, *_: setattr(task, "success", True)
    )
    session.tick()
    assert (session.phase, session.notice) == (Phase.OVER, "Done!")
    monkeypatch.setattr(
        type(session.world.task), "after_step", lambda task, *_: setattr(task, "success", False)
    )
    work(session, 3)
    episode = session.recorder.store.episode(session.keep())
    assert (episode.attributes.success, episode.steps) == (True, 5)
    session.stop_conditions = StopConditions(end_on_success=False)
    session.record()
    monkeypatch.setattr(
        type(session.world.task), "after_step", lambda task, *_: setattr(task, "success", True)
    )
    work(session, 3)
    assert session.phase is Phase.RECORDING


def test_a_take_that_is_too_long_ends_and_can_be_kept(session: TeleopSession) -> None:
    session.stop_conditions = StopConditions(longest_s=0.1)
    session.record()
    work(session, 9)
    assert (session.phase, session.notice) == (Phase.OVER, "The take has reached 0.1 s.")
    assert session.recorder.store.episode(session.keep()).steps == 5
    with pytest.raises(ValueError, match=r"longest_s must be a number above 0 \(got 0\)"):
        StopConditions(longest_s=0)


def test_buttons_at_the_wrong_time_are_refused_and_change_nothing(
    session: TeleopSession,
) -> None:
    for press in (session.keep, session.discard):
        with pytest.raises(ValueError, match="There is no take to (keep|discard)"):
            press()
    with pytest.raises(ValueError, match="The seed must be an integer of at least 0"):
        session.reset(-1)
    session.record(7)
    with pytest.raises(ValueError, match="There is no take to keep"):
        session.keep()
    work(session, 2)
    for press, command in ((session.record, "record another one"), (session.reset, "reset")):
        with pytest.raises(
            ValueError, match=f"A take is open; keep it or discard it, then {command}"
        ):
            press()
    assert (session.phase, session.recorder.steps, session.seed) == (Phase.RECORDING, 2, 7)
    session.discard()
    assert (session.phase, session.notice, session.seed) == (Phase.FREE, "Discarded.", 7)
    assert len(session.recorder.store) == 0
    assert [entry.name for entry in session.recorder.store.path.iterdir()] == ["zarr.json"]


def test_seeds_go_on_from_those_that_the_store_has(
    session: TeleopSession, world: TaskEnvironment
) -> None:
    for seed in (4, 5):
        session.record(seed)
        work(session, 2)
        session.keep()
    session.record(3)
    work(session, 2)
    session.keep()
    assert session.seed == 6
    assert TeleopSession(world, session.recorder, RECIPE.options, seed=3).seed == 6
    assert session.recorder.free_seed(0) == 0
    # Collection of an expert's episodes into the same store counts its own alone.
    assert Collection(session.recorder.store, Recipe()).tried == 0


def test_a_full_disk_costs_the_take_and_not_the_work(
    session: TeleopSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.record()
    work(session, 3)

    def full(writer: EpisodeWriter, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left (frame 3); make room or choose another folder")

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeWriter, "step", full)
        session.tick()
        assert session.phase is Phase.FREE
        assert (
            session.notice
            == "No space left (frame 3); make room or choose another folder. The take is discarded."
        )
        session.tick()
    session.record()
    work(session, 3)
    with monkeypatch.context() as patch:
        patch.setattr(EpisodeWriter, "commit", full)
        with pytest.raises(OSError, match="No space left"):
            session.keep()
    assert session.phase == Phase.FREE
    assert session.recorder.open is False
    assert len(session.recorder.store) == 0
    assert session.recorder.store.leftovers() == []


def test_the_episode_begins_again_after_unstable_physics(
    session: TeleopSession, caplog: pytest.LogCaptureFixture
) -> None:
    session.record()
    work(session, 3)
    session.world.physics.data.qvel[:] = 1e12
    session.tick()
    assert (
        session.notice
        == "The physics became unstable; the episode begins again. The take is discarded."
    )
    assert (session.phase, session.recorder.open) == (Phase.FREE, False)
    assert "became unstable" in caplog.text
    session.tick()
    assert not session.result.unstable


def test_a_gamepad_steers_one_arm_and_presses_the_same_buttons(session: TeleopSession) -> None:
    def follow(*pressed: str, up: float = 0.0, opening: float = 0.0) -> None:
        control.follow(
            GamepadCommand(np.array([0.0, 0.0, up]), np.zeros(3), opening, frozenset(pressed))
        )
        session.tick()

    control = GamepadControl(session)
    before = {arm: target.copy() for arm, target in session.steering.targets.items()}
    follow("other")
    assert control.arm == "right"
    follow("take")
    assert session.phase is Phase.RECORDING
    for _ in range(20):
        follow(up=-1.0, opening=1.0)
    targets = session.steering.targets
    np.testing.assert_array_equal(targets["left"], before["left"])
    assert before["right"][2, 3] - targets["right"][2, 3] == pytest.approx(
        20 * session.speeds.linear / 50
    )
    assert session.steering.openings == {"left": 0.0, "right": pytest.approx(20 * 2.0 / 50)}
    follow("take", "left")
    assert (control.arm, len(session.recorder.kept), session.seed) == ("left", 1, 4)
    with pytest.raises(ValueError, match="There is no take to discard"):
        follow("discard")
    follow("take")
    follow(up=1.0)
    follow("recall")
    assert session.steering.reach("left").metres == 0.0
    follow("discard")
    follow("reset")
    assert (session.phase, len(session.recorder.store)) == (Phase.FREE, 1)


def test_images_are_rendered_for_visitors_only(session: TeleopSession) -> None:
    work(session)
    assert session.images == {}
    for _ in range(4):
        session.tick(watched=True)
    assert session.images["overhead"].shape == (16, 16, 3)


def test_a_store_that_cannot_be_written_is_refused_at_once(
    session: TeleopSession, tmp_path: Path, world: TaskEnvironment
) -> None:
    def recorder(path: Path | str) -> TakeRecorder:
        return TakeRecorder(path, RECIPE, world.contract, "", ("start", "success"))

    (tmp_path / "file").touch()
    with pytest.raises(
        ValueError,
        match=r"file/store cannot be written \(Not a directory\). Choose another folder: store=",
    ):
        recorder(tmp_path / "file" / "store")
    with pytest.raises(ValueError, match="exists and is not an episode store"):
        recorder(tmp_path)
    attributes = EpisodeAttributes(world.contract, "hand_over_banana", 1)
    abandoned = EpisodeStore.create(tmp_path / "store").writer(attributes)
    abandoned._close()  # As when its process was killed.
    assert len(session.recorder.store.leftovers()) == 1
    recorder(tmp_path / "store")
    assert session.recorder.store.leftovers() == []
