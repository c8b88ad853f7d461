"""Films show the recorded motion; observations, results and states are those without them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from tests.sim.in_process import roll_out

from stringline import ActionChunk, TaskEnvironment, TaskSettings
from stringline.datasets.contract.contract import Array
from stringline.sim.environment.environment import make_environment
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import Motion, Trace, write_trace
from stringline.sim.report.film import HEIGHT, WIDTH, draw_film, with_films
from stringline.sim.report.report import Clip
from stringline.sim.robots.arm_appearance import PRIMITIVES
from stringline.sim.rollout.rollout import Rollout, Video

TASK = TaskSettings("hand_over_banana", time_limit_s=0.4, options={"table_height": 0.02})
SEED = 1_000_003


Observations = list[dict[str, Array]]


def episode(video: Video | None, *, film_each_plan: bool = False) -> tuple[Rollout, Observations]:
    """A short motion of all joints; returns the rollout and all observations of the policy."""
    world = make_environment(TASK.name, cameras=["overhead"], image_size=32, time_limit_s=0.4)
    seen: Observations = []

    def plan(observation: Mapping[str, Array]) -> ActionChunk:
        seen.append({key: np.array(value) for key, value in observation.items()})
        if film_each_plan:
            next(draw_film(world, world.body_positions()[None], height=36, width=64))
        times = float(observation["time"]) + 0.02 * np.arange(5)
        wave = 0.3 * np.sin(5 * times[:, None] + np.arange(14))
        return ActionChunk(
            times.astype(np.float64), (world.embodiment.home + wave).astype(np.float32)
        )

    rollout = roll_out(world, plan, SEED, execute_steps=5, options=TASK.options, video=video)
    world.close()
    return rollout, seen


@pytest.mark.slow
def test_films_change_neither_observations_nor_motion() -> None:
    """Not even if images are drawn in the middle of an episode, in its own world."""
    plain, seen = episode(None)
    filmed, seen_too = episode(Video(), film_each_plan=True)
    assert plain.motion == {}
    np.testing.assert_array_equal(np.stack(plain.actions), np.stack(filmed.actions))
    for one, other in zip(seen, seen_too, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            np.testing.assert_array_equal(value, other[key], err_msg=key)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    """A clip whose trace has the motion of an episode of 0.4 s."""
    folder = tmp_path_factory.mktemp("videos")
    video = Video()
    rollout, seen = episode(video)
    video.write(folder / f"{SEED}.mp4")
    world = make_environment(TASK.name, cameras=["overhead"], image_size=32)
    trace = Trace.of(rollout, world.task.stages, world.contract)
    world.close()
    write_trace(folder / f"{SEED}.npz", trace, seen[0], Motion.of(rollout))
    result = EpisodeResult(SEED, False, 0, "start", 0.4, 4, 1.0, 1.0)
    return Clip(folder / f"{SEED}.mp4", result)


@pytest.mark.slow
def test_a_film_has_all_frames_and_is_drawn_once(clip: Clip) -> None:
    (filmed,) = with_films([clip], TASK, PRIMITIVES)
    assert filmed.film is not None
    assert filmed.film == clip.path.parent / "films" / f"{SEED}.mp4"
    with av.open(str(filmed.film)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert float(container.streams.video[0].average_rate or 0) == pytest.approx(12.5)
    assert [frame.shape for frame in frames] == [(HEIGHT, WIDTH, 3)] * 6  # 0, 0.08 ... 0.4 s.
    moved = np.abs(frames[0].astype(int) - frames[-1]).max(axis=2) > 40
    assert moved.mean() > 0.01
    drawn = filmed.film.stat().st_mtime_ns
    assert with_films([clip], TASK, PRIMITIVES) == [filmed]
    assert filmed.film.stat().st_mtime_ns == drawn


def test_a_film_shows_the_options_of_the_episode(clip: Clip) -> None:
    """The world of a film has the table and the start of the episode, not those of another one."""
    images = []
    for options in (TASK.options, {}):
        world = make_environment(TASK.name, cameras=[])
        assert isinstance(world, TaskEnvironment)
        world.begin(SEED, options)
        before = world.snapshot()
        (image,) = draw_film(world, world.body_positions()[None], height=36, width=64)
        images.append(image.astype(int))
        np.testing.assert_array_equal(world.snapshot(), before)
        world.close()
    assert np.abs(images[0] - images[1]).max() > 20


def test_clips_without_motion_and_of_other_worlds_stay_as_they_are(
    clip: Clip, tmp_path: Path
) -> None:
    bare = replace(clip, path=tmp_path / "7.mp4")
    assert with_films([bare], TASK, PRIMITIVES) == [bare]
    other = TaskSettings("gym_aloha_transfer_cube")
    assert with_films([clip], other, PRIMITIVES) == [clip]


def test_without_opengl_the_report_has_no_films_and_a_warning_says_so(
    clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moved = replace(clip, path=tmp_path / clip.path.name)
    for suffix in (".mp4", ".npz"):
        moved.path.with_suffix(suffix).write_bytes(clip.path.with_suffix(suffix).read_bytes())

    def refuse(width: int, height: int) -> None:
        raise RuntimeError(f"OpenGL for {width}x{height} is not available.")

    monkeypatch.setattr("stringline.sim.report.film.open_graphics", refuse)
    assert with_films([moved], TASK, PRIMITIVES) == [moved]
    assert "no videos of rendering=pretty. OpenGL for 640x360 is not available." in caplog.text
    assert list((tmp_path / "films").iterdir()) == []
