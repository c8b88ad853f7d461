"""Environments in another process: their episodes, their contract, and their failures."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stringline.datasets.contract.contract import Array, check_observation
from stringline.datasets.embodiments.gym_aloha import normalised_of_opening
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.interpreters import environment_process, environment_server, metaworld_tasks
from stringline.sim.interpreters.environment_process import EnvironmentProcess, Interpreter
from stringline.sim.interpreters.environment_server import Host
from stringline.sim.rollout.world_interface import World, WorldLostError
from stringline.sim.worlds.gym_aloha import GRIPPERS
from stringline.sim.worlds.remote_environment import RemoteEnvironment, remote_facts
from stringline.sim.worlds.world_registry import make_any_expert, open_third_party, open_world

HERE = "remote:tests.sim.interpreters.environments:"
SLIDER, FAILING = f"{HERE}slider", f"{HERE}failing_slider"
RATES: dict[str, Any] = {"control_hz": 20.0, "frame_hz": 10.0, "time_limit_s": 3.0}


def opened(task: str, answer_s: float = 60.0, **settings: Any) -> RemoteEnvironment:
    """Opens an environment in a process of this interpreter."""
    world = open_world(
        task, interpreter=Interpreter(None, answer_s), **{"image_size": 24, **RATES, **settings}
    )
    assert isinstance(world, RemoteEnvironment)
    return world


@pytest.fixture(scope="module")
def world() -> Iterator[RemoteEnvironment]:
    """The sound environment with all cameras."""
    with closing(opened(SLIDER)) as world:
        yield world


@pytest.mark.parametrize("module", [environment_server, metaworld_tasks])
def test_the_files_of_other_interpreters_import_numpy_at_most(module: Any) -> None:
    found = set()
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    assert found - set(sys.stdlib_module_names) == {"numpy"}


def test_images_geometry_and_state_agree(world: RemoteEnvironment) -> None:
    """The puck is where its joints say: on the pixel and at the depth of its top."""
    assert isinstance(world, World)
    assert [one.name for one in world.contract.cameras] == ["above", "riding"]
    moving = {mount.name: mount.parent for mount in world.embodiment.cameras}
    assert moving == {"above": "world", "riding": "arm"}
    world.begin(3)
    for _ in range(20):
        world.advance(np.array([0.1, -0.08]))
    seen = world.observe()
    check_observation(seen, world.contract)
    place = seen["joints/position"][:2]
    np.testing.assert_allclose(world.physics.get_state()[:2], place, atol=1e-6)
    np.testing.assert_allclose(place, [0.1, -0.08], atol=0.01)
    T_base_camera = seen["T_base_camera/above"]
    point = np.linalg.inv(T_base_camera) @ np.array([*place, 0.06, 1.0])
    column, row = (seen["intrinsics/above"] @ (point[:3] / point[2]))[:2].astype(int)
    assert seen["depth/above"][row, column] == pytest.approx(740, abs=1)
    assert seen["rgb/above"][row, column].argmax() == 0, "the puck is red"
    np.testing.assert_allclose(
        seen["T_base_camera/riding"][:2, 3], world.physics.get_state()[:2], atol=1e-3
    )


def test_an_episode_is_a_function_of_its_seed_and_ends_in_success(world: RemoteEnvironment) -> None:
    expert = make_any_expert(SLIDER)
    ends = []
    for seed in (5, 6, 5):
        world.begin(seed)
        expert.reset(world, np.random.default_rng(seed))
        while not (result := world.advance(expert.act(world))).success:
            assert not result.expired
        ends.append((result.time, *world.physics.get_state()))
    assert ends[0] == ends[2] != ends[1]
    assert remote_facts(SLIDER, Interpreter()).instruction == world.task.instruction


@pytest.mark.slow
def test_images_of_observations_have_neither_depth_nor_another_size() -> None:
    with closing(opened(f"{HERE}pictures")) as world:
        world.begin(0)
        (camera,) = world.contract.cameras
        assert (camera.name, camera.depth, camera.has_geometry) == ("pixels", None, False)
        check_observation(world.observe(), world.contract)
    with pytest.raises(ValueError, match=r"16x16.*24x24: add task.image_size=\[24,24\]"):
        opened(f"{HERE}pictures", image_size=16)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("digit", "words"),
    [
        (1, "ended with SIGKILL"),
        (2, "did not answer within 8 s"),
        (3, "breaks its contract: joints/position is not finite"),
        (4, "breaks its contract: joints/position has shape"),
        (5, "failed: RuntimeError: The puck is stuck"),
    ],
)
def test_a_failure_costs_its_episode_only(digit: int, words: str) -> None:
    trace = {2: "in step", 5: "RuntimeError: The puck is stuck."}
    with closing(opened(FAILING, answer_s=8.0)) as world:
        world.begin(10 + digit)
        with pytest.raises(WorldLostError, match=words) as failure:
            _act(world, 5)
        log = Path(str(failure.value).rpartition(" ")[2])
        assert trace.get(digit, "") in log.read_text()
        log.unlink()
        world.begin(10)  # In a new process.
        _act(world, 5)
        assert world.time == pytest.approx(0.25)


@pytest.mark.slow
def test_killed_and_hanging_environments_lose_nothing_but_their_episodes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = Recipe(SLIDER, image_size=24, **RATES)
    sound = collect(recipe, tmp_path / "sound", 5, workers=1, first_seed=20)
    failing = replace(recipe, task=FAILING, interpreter=Interpreter(None, 8.0))
    with caplog.at_level("INFO"):
        found = collect(failing, tmp_path / "failing", 3, workers=2, first_seed=20)
    assert [one.seed for one in sound.outcomes] == [20, 21, 22, 23, 24]
    kept = {one.seed for one in found.outcomes if one.success}
    lost = {one.seed: one.error for one in found.outcomes if one.lost}
    assert kept >= {20, 26}
    assert set(lost) == {one.seed for one in found.outcomes} - kept
    assert "ended with SIGKILL" in lost[21]
    assert "did not answer" in lost[22]
    assert f"{len(lost)} were lost" in caplog.text
    stored = [_arrays(tmp_path / name)[20] for name in ("sound", "failing")]
    for key, array in stored[0].items():
        np.testing.assert_array_equal(array, stored[1][key], err_msg=key)
    for error in lost.values():
        Path(error.rpartition(" ")[2]).unlink()


def _act(world: World, steps: int) -> None:
    for _ in range(steps):
        world.observe()
        world.advance(np.zeros(2))


def _arrays(path: Path) -> dict[int, dict[str, Array]]:
    """Returns the arrays of the episodes of a store by their seeds."""
    return {
        episode.attributes.seed: {key: np.asarray(episode.arrays[key]) for key in episode.arrays}
        for episode in EpisodeStore.open(path).episodes()
    }


@pytest.mark.slow
def test_episodes_of_gym_aloha_are_those_of_this_process_bit_by_bit() -> None:
    """States are those of the world here, and images those of the same code in this process."""
    place = "benchmarks.transfer_cube_environment:transfer_cube"
    cameras = ["top", "left_wrist"]
    here = Host(bytearray)
    here.answer(
        {"type": "open", "place": place, "name": None, "cameras": cameras, "size": [48, 64]}
    )
    local = open_third_party("gym_aloha_transfer_cube", cameras=())
    remote = opened(
        f"remote:{place}", cameras=cameras, image_size=[48, 64], control_hz=50.0, frame_hz=10.0
    )
    try:
        for each in (local, remote):
            each.begin(7)
        here.answer({"type": "begin", "seed": 7})
        rng = np.random.default_rng(0)
        for _ in range(30):
            if remote.frame_due:
                seen = remote.observe()
                here.answer({"type": "look"})
                for key, array in here.frame.items():
                    np.testing.assert_array_equal(seen[key], array, err_msg=key)
            opened_as = local.embodiment.home + rng.uniform(-0.2, 0.2, 14)
            opened_as[GRIPPERS] = rng.uniform(0, 1, 2)
            command = opened_as.copy()
            command[GRIPPERS] = normalised_of_opening(opened_as[GRIPPERS])
            local.advance(opened_as)
            remote.advance(command)
            here.answer({"type": "step", "action": command})
            np.testing.assert_array_equal(remote.physics.get_state(), local.physics.get_state())
    finally:
        local.close()
        remote.close()
        here.close()


def test_another_protocol_and_a_missing_package_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = Interpreter(str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ValueError, match=r"cannot run .* 'numpy'. Run: .*bare/bin/python -m pip"):
        EnvironmentProcess(SLIDER, bare)
    with pytest.raises(ValueError, match=r"has no module 'metaworldd'. Run: "):
        opened("remote:metaworldd:make")
    monkeypatch.setattr(environment_process, "PROTOCOL", "stringline-environment/9")
    with pytest.raises(ValueError, match=r"'stringline-environment/1'; this .*environment/9"):
        EnvironmentProcess(SLIDER, Interpreter())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cameras": ["abovee"]}, "no camera 'abovee'. Allowed: above, riding"),
        ({"control_hz": 50.0}, "has 20 actions per second: add task.control_hz=20"),
        ({"segmentation": True}, "have none"),
        ({"embodiment": "menagerie:ur5e"}, "arms of its own"),
    ],
)
def test_settings_that_it_cannot_have_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        opened(SLIDER, **settings)


def test_names_of_other_forms_are_refused(world: RemoteEnvironment) -> None:
    with pytest.raises(ValueError, match="allowed: remote:MODULE:FUNCTION"):
        opened("remote:nothing")
    with pytest.raises(ValueError, match="option of the task"):
        world.begin(0, {"table_height": 0.1})
    with pytest.raises(ValueError, match=r"There is no Python interpreter '/none/python'"):
        open_world(SLIDER, interpreter=Interpreter("/none/python"))
