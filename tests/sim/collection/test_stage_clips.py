"""Clips of the stages of experts' episodes: their labels, rooms and frames."""

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.collection.stage_clips import (
    StageClips,
    StageEpisode,
    StageSettings,
    episode_seed,
    stage_label,
)
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.looks.looks import LOOKS
from stringline.sim.tasks.task_registry import task_class

QUICK = ("kuka_pick", "kuka_bimanual_pick")
SIZE = (48, 64)


def episode(**settings: Any) -> StageEpisode:
    drawer = StageClips(StageSettings(**{"tasks": QUICK, "image_size": SIZE, **settings}))
    (found,) = drawer.room(0)
    drawer.close()
    return found


@cache
def episodes() -> list[StageEpisode]:
    drawer = StageClips(StageSettings(QUICK, image_size=SIZE))
    found = [drawer.room(number)[0] for number in range(3)]
    drawer.close()
    return found


class WatchedExpert:
    """An expert; keeps an image of the first step of each stage."""

    def __init__(self, task: str) -> None:
        self._expert = make_expert(task)
        self.seen: dict[int, Array | None] = {}

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        self._expert.reset(env, rng)

    def act(self, env: TaskEnvironment) -> Vector:
        self.look(env)
        return self._expert.act(env)

    def look(self, env: TaskEnvironment) -> None:
        if env.task.stage not in self.seen:
            self.seen[env.task.stage] = env.render()


@pytest.mark.slow
def test_labels_are_the_stages_of_the_task() -> None:
    for number, each in enumerate(episodes()):
        task = QUICK[number % 2]
        labels = [stage_label(task, stage) for stage in task_class(task).stages[1:]]
        assert [clip.label for clip in each.clips] == labels
        assert (each.short, each.failure) == ((), "")
    assert episodes()[1].clips[0].label == "kuka bimanual pick: grasped"


@pytest.mark.slow
def test_clips_of_an_episode_share_a_room_of_task_and_seed() -> None:
    for number, each in enumerate(episodes()):
        task = QUICK[number % 2]
        assert {clip.room for clip in each.clips} == {f"{task}-{episode_seed(0, number)}"}
        assert {clip.source for clip in each.clips} == {task}
    assert len({each.name for each in episodes()}) == 3


def test_the_last_frame_of_a_clip_shows_the_step_at_which_its_stage_is_reached() -> None:
    world = make_environment("kuka_pick", cameras=["overhead"], image_size=SIZE)
    expert = WatchedExpert("kuka_pick")
    record_episode(world, expert, episode_seed(0, 0))
    expert.look(world)
    world.close()
    clips = episodes()[0].clips
    np.testing.assert_array_equal(clips[0].rgb[0], expert.seen[0])
    for stage, clip in enumerate(clips, 1):
        np.testing.assert_array_equal(clip.rgb[-1], expert.seen[stage])


def test_a_clip_begins_with_the_last_frame_of_the_one_before() -> None:
    for each in episodes():
        for before, after in zip(each.clips[:-1], each.clips[1:], strict=True):
            np.testing.assert_array_equal(before.rgb[-1], after.rgb[0])


def test_frames_have_depth_and_the_geometry_of_the_camera() -> None:
    clip = episode(camera="wrist", tasks=("kuka_pick",), clip_frames=5).clips[0]
    assert clip.rgb.shape == (5, *SIZE, 3)
    assert clip.depth is not None
    assert (clip.depth.dtype, clip.depth.shape) == (np.uint16, (5, *SIZE))
    assert 10 < np.median(clip.depth[clip.depth > 0]) < 2500
    assert clip.intrinsics is not None
    assert clip.intrinsics[0, 2] == SIZE[1] / 2
    assert clip.T_world_camera is not None
    # A camera at the wrist moves with the arm.
    assert np.ptp(clip.T_world_camera[:, :3, 3], axis=0).max() > 0.1


@pytest.mark.slow
def test_looks_change_colours_and_no_motion() -> None:
    plain, textured = (episode(camera="wrist", tasks=QUICK[:1], looks=looks) for looks in LOOKS[:2])
    assert len(plain.clips) == 3
    for one, other in zip(plain.clips, textured.clips, strict=True):
        assert one.T_world_camera is not None
        np.testing.assert_array_equal(one.T_world_camera, other.T_world_camera)
        assert (one.rgb != other.rgb).any()


@pytest.mark.slow
def test_a_failed_episode_has_clips_of_the_stages_that_it_reached() -> None:
    found = episode(time_limit_s=3.6)
    assert [clip.label for clip in found.clips] == ["kuka pick: grasped"]
    assert found.failure == "stage 'grasped' after 3.6 s"
    np.testing.assert_array_equal(found.clips[0].rgb, episodes()[0].clips[0].rgb)


def test_parts_of_fewer_steps_than_frames_are_left_out_and_named() -> None:
    found = episode(clip_frames=100)
    assert [clip.label for clip in found.clips] == ["kuka pick: grasped"]
    assert found.short == ("kuka pick: lifted", "kuka pick: success")


@pytest.mark.slow
def test_experts_import_no_torch() -> None:
    code = (
        "import sys, stringline.sim.generate\n"
        "from stringline.sim.experts.expert_registry import TASKS, make_expert\n"
        "print(len([make_expert(task) for task in TASKS]), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["17", "False"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": ()}, "tasks is \\[\\]; allowed: any of bowl_on_rack, "),
        ({"tasks": ("bowl_on_rak",)}, "no task 'bowl_on_rak'. Did you mean 'bowl_on_rack'"),
        (
            {"camera": "wrist"},
            "There is no camera of the task kuka_bimanual_pick 'wrist'. Did you mean 'wrist_",
        ),
        ({"clip_frames": 1}, r"clip_frames must be an integer from 2 to 256 \(got 1\)."),
        ({"clip_frames": 257}, r"clip_frames must be an integer from 2 to 256 \(got 257\)."),
        ({"image_size": (8, 64)}, r"image_size must be an integer from 16 to 1024 \(got 8\)."),
        ({"seed": -1}, r"seed must be an integer of at least 0 \(got -1\)."),
        ({"time_limit_s": 0.0}, r"time_limit_s must be a number above 0 \(got 0.0\)."),
        ({"looks": "plane"}, "There is no looks 'plane'. Did you mean 'plain'"),
        ({"looks": "held_out"}, "looks=held_out is for evaluations"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        episode(**settings)
