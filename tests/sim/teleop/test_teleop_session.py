"""Takes: they become episodes that go the same way again, or nothing; whatever is pressed when, and whatever breaks."""

import errno
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.transforms import pose
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore
from stringline.sim import replay as episode_replay
from stringline.sim.collect import open_recipe_world
from stringline.sim.collection.collection_state import Collection, Recipe
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.replay import recorded_world, replay_episode
from stringline.sim.teleop.gamepad import Wish
from stringline.sim.teleop.hands import Hands
from stringline.sim.teleop.take_recorder import Takes
from stringline.sim.teleop.teleop_session import Operation, Phase, Rules

RECIPE = Recipe(varied=False, cameras=("overhead",), image_size=16, options={"table_height": 0.02})


@pytest.fixture(scope="module")
def world() -> Iterator[TaskEnvironment]:
    world = open_recipe_world(RECIPE)
    assert isinstance(world, TaskEnvironment)
    yield world
    world.close()


@pytest.fixture
def operation(world: TaskEnvironment, tmp_path: Path) -> Operation:
    takes = Takes(
        tmp_path / "store", RECIPE, world.contract, world.task.instruction, world.task.stages
    )
    return Operation(world, takes, RECIPE.options, seed=3)


def work(operation: Operation, steps: int = 12) -> None:
    """Moves an arm down and closes its gripper, and goes on from what was pressed before."""
    target = operation.steering.targets["left"]
    operation.steering.aim("left", pose(target[:3, 3] + (0.02, 0.0, -0.05), target[:3, :3]))
    operation.steering.grip("left", 0.5)
    for _ in range(steps):
        operation.tick()


def test_a_kept_take_is_an_episode_that_goes_the_same_way_again(operation: Operation) -> None:
    """To the last bit, though the arms were elsewhere when it began."""
    work(operation)
    operation.record()
    assert operation.phase is Phase.RECORDING
    work(operation, 30)
    name = operation.keep()
    assert operation.phase is Phase.FREE
    assert (operation.seed, operation.takes.kept) == (4, [name])
    assert operation.notice == f"Kept {name}: 0.6 s, no success."
    episode = operation.takes.store.episode(name)
    assert operation.takes.store.verify(name) == []
    attributes, arrays = episode.attributes, episode.arrays
    assert (attributes.task, attributes.seed, attributes.success) == ("hand_over_banana", 3, False)
    assert (attributes.source, attributes.instruction) == (
        "teleoperation",
        operation.world.task.instruction,
    )
    assert recorded_world(episode) == RECIPE
    np.testing.assert_allclose(arrays["time"], np.arange(30) / 50)
    assert len(arrays["rgb/overhead"]) == 8  # 30 steps with an image at every fourth.
    assert arrays["joints/position"][-1, 6] > arrays["joints/position"][0, 6] + 0.3
    replay = replay_episode(episode)
    assert (replay.steps, replay.difference, replay.final_difference) == (30, 0.0, 0.0)
    assert (replay.success, replay.stage) == (False, arrays["stage"][-1])


def test_the_command_that_replays(
    operation: Operation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operation.record()
    work(operation, 5)
    name = operation.keep()
    store = operation.takes.store
    monkeypatch.setattr(
        sys, "argv", ["stringline-replay", f"store={store.path}", "episode=hand_over"]
    )
    episode_replay.main()
    assert capsys.readouterr().out == (
        f"{name}: 5 steps again. The states differ by at most 0, by 0 at the end. Now no success "
        f"(stage 0), then no success.\n"
    )
    episode = store.episode(name)
    recipe = episode.attributes.extra["recipe"]
    for extra, complaint in (
        ({}, r"\(source 'teleoperation'\) does not say in which simulated world"),
        ({"recipe": {**recipe, "gravity": 1}}, r"has gravity, which this version does not know"),
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
    operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world goes on meanwhile, and what becomes of it then does not count any more."""
    operation.record()
    work(operation, 4)
    monkeypatch.setattr(
        type(operation.world.task), "after_step", lambda task, *_: setattr(task, "success", True)
    )
    operation.tick()
    assert (operation.phase, operation.notice) == (Phase.OVER, "Done!")
    monkeypatch.setattr(
        type(operation.world.task), "after_step", lambda task, *_: setattr(task, "success", False)
    )
    work(operation, 3)
    episode = operation.takes.store.episode(operation.keep())
    assert (episode.attributes.success, episode.steps) == (True, 5)
    operation.rules = Rules(end_on_success=False)
    operation.record()
    monkeypatch.setattr(
        type(operation.world.task), "after_step", lambda task, *_: setattr(task, "success", True)
    )
    work(operation, 3)
    assert operation.phase is Phase.RECORDING


def test_a_take_that_is_too_long_ends_and_can_be_kept(operation: Operation) -> None:
    operation.rules = Rules(longest_s=0.1)
    operation.record()
    work(operation, 9)
    assert (operation.phase, operation.notice) == (Phase.OVER, "The take has reached 0.1 s.")
    assert operation.takes.store.episode(operation.keep()).steps == 5
    with pytest.raises(ValueError, match=r"longest_s is 0; it must be above 0"):
        Rules(longest_s=0)


def test_what_is_pressed_at_the_wrong_time_is_refused_and_changes_nothing(
    operation: Operation,
) -> None:
    for press in (operation.keep, operation.discard):
        with pytest.raises(
            ValueError,
            match=r"There is nothing to (keep|discard): nothing (has been|is being) recorded",
        ):
            press()
    with pytest.raises(ValueError, match="The seed is -1; allowed: whole numbers 0 and above"):
        operation.reset(-1)
    operation.record(7)
    with pytest.raises(ValueError, match="There is nothing to keep"):
        operation.keep()
    work(operation, 2)
    for press, wish in ((operation.record, "record another one"), (operation.reset, "reset")):
        with pytest.raises(ValueError, match=f"A take is open; keep it or discard it, then {wish}"):
            press()
    assert (operation.phase, operation.takes.steps, operation.seed) == (Phase.RECORDING, 2, 7)
    operation.discard()
    assert (operation.phase, operation.notice, operation.seed) == (Phase.FREE, "Discarded.", 7)
    assert len(operation.takes.store) == 0
    assert [entry.name for entry in operation.takes.store.path.iterdir()] == ["zarr.json"]


def test_seeds_go_on_from_those_that_the_store_has(
    operation: Operation, world: TaskEnvironment
) -> None:
    for seed in (4, 5):
        operation.record(seed)
        work(operation, 2)
        operation.keep()
    operation.record(3)
    work(operation, 2)
    operation.keep()
    assert operation.seed == 6
    assert Operation(world, operation.takes, RECIPE.options, seed=3).seed == 6
    assert operation.takes.free_seed(0) == 0
    # Collection of an expert's episodes into the same store counts its own alone.
    assert Collection(operation.takes.store, Recipe()).tried == 0


def test_a_full_disk_costs_the_take_and_not_the_work(
    operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation.record()
    work(operation, 3)

    def full(writer: EpisodeWriter, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left (frame 3); make room or choose another folder")

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeWriter, "step", full)
        operation.tick()
        assert operation.phase is Phase.FREE
        assert (
            operation.notice
            == "No space left (frame 3); make room or choose another folder. The take is discarded."
        )
        operation.tick()
    operation.record()
    work(operation, 3)
    with monkeypatch.context() as patch:
        patch.setattr(EpisodeWriter, "commit", full)
        with pytest.raises(OSError, match="No space left"):
            operation.keep()
    assert (operation.phase, operation.takes.open, len(operation.takes.store)) == (
        Phase.FREE,
        False,
        0,
    )
    assert operation.takes.store.leftovers() == []


def test_physics_that_blows_up_begins_again(
    operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    operation.record()
    work(operation, 3)
    operation.world.physics.data.qvel[:] = 1e12
    operation.tick()
    assert (
        operation.notice
        == "The physics became unstable; the episode begins again. The take is discarded."
    )
    assert (operation.phase, operation.takes.open) == (Phase.FREE, False)
    assert "became unstable" in caplog.text
    operation.tick()
    assert not operation.result.unstable


def test_a_gamepad_steers_one_arm_and_presses_the_same_buttons(operation: Operation) -> None:
    def follow(*pressed: str, up: float = 0.0, opening: float = 0.0) -> None:
        hands.follow(Wish(np.array([0.0, 0.0, up]), np.zeros(3), opening, frozenset(pressed)))
        operation.tick()

    hands = Hands(operation, ALOHA)
    before = {arm: target.copy() for arm, target in operation.steering.targets.items()}
    follow("other")
    assert hands.arm == "right"
    follow("take")
    assert operation.phase is Phase.RECORDING
    for _ in range(20):
        follow(up=-1.0, opening=1.0)
    targets = operation.steering.targets
    np.testing.assert_array_equal(targets["left"], before["left"])
    assert before["right"][2, 3] - targets["right"][2, 3] == pytest.approx(
        20 * operation.speeds.linear / 50
    )
    assert operation.steering.openings == {"left": 0.0, "right": pytest.approx(20 * 2.0 / 50)}
    follow("take", "left")
    assert (hands.arm, len(operation.takes.kept), operation.seed) == ("left", 1, 4)
    with pytest.raises(ValueError, match="There is nothing to discard"):
        follow("discard")
    follow("take")
    follow(up=1.0)
    follow("recall")
    assert operation.steering.reach("left").metres == 0.0
    follow("discard")
    follow("reset")
    assert (operation.phase, len(operation.takes.store)) == (Phase.FREE, 1)


def test_images_are_drawn_when_somebody_looks(operation: Operation) -> None:
    work(operation)
    assert operation.images == {}
    for _ in range(4):
        operation.tick(watched=True)
    assert operation.images["overhead"].shape == (16, 16, 3)


def test_a_store_that_cannot_be_written_is_refused_at_once(
    operation: Operation, tmp_path: Path, world: TaskEnvironment
) -> None:
    def takes(path: Path | str) -> Takes:
        return Takes(path, RECIPE, world.contract, "", ("start", "success"))

    (tmp_path / "file").touch()
    with pytest.raises(
        ValueError,
        match=r"file/store cannot be written \(Not a directory\). Choose another folder: store=",
    ):
        takes(tmp_path / "file" / "store")
    with pytest.raises(ValueError, match="exists and is no episode store"):
        takes(tmp_path)
    attributes = EpisodeAttributes(world.contract, "hand_over_banana", 1)
    abandoned = EpisodeStore.create(tmp_path / "store").writer(attributes)
    abandoned._close()  # As when its process was killed.
    assert len(operation.takes.store.leftovers()) == 1
    takes(tmp_path / "store")
    assert operation.takes.store.leftovers() == []
