"""Arms with Menagerie's meshes move as ours to the bit, with meshes at the model's places."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import mujoco
import mujoco_menagerie
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sim import menagerie_files

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import Attempt, open_recipe_world
from stringline.sim.collection.collection_state import Collection, Recipe
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.replay import recorded_world, replay_episode
from stringline.sim.robots.arm_appearance import RobotModel
from stringline.sim.robots.robot_model import set_robot_model
from stringline.sim.robots.workcells import ALOHA_CELL, KUKA_BIMANUAL_CELL, Robot, Workcell
from stringline.sim.tasks.task_registry import make_task
from stringline.sim.teleop.scene_view import drawn_bodies
from stringline.sim.worlds.world_versions import world_versions

POSES, SEED = 4, 3
NEAR_M = 0.001
MOVED: Matrix = pose((0.0, 0.019, -0.0299))  # From the frame of its ALOHA to ours.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("menagerie")
    menagerie_files.write_menagerie(root)
    return root


@pytest.fixture(autouse=True)
def root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENAGERIE_ROOT", str(folder))


def with_meshes(cell: Workcell) -> Robot:
    robot = cell.robot()
    set_robot_model(robot, "menagerie")
    return robot


def compiled(robot: Robot) -> mujoco.MjModel:
    root = robot.mjcf_model
    return mujoco.MjModel.from_xml_string(root.to_xml_string(), root.get_assets())


def drawn_meshes(
    model: mujoco.MjModel, data: mujoco.MjData
) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Returns the vertices (V, 3) of all drawn meshes in the world frame, by body and mesh."""
    found = {}
    for geom in range(model.ngeom):
        mesh = int(model.geom_dataid[geom])
        if mesh < 0 or model.geom_contype[geom] or model.geom_conaffinity[geom]:
            continue
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        vertices = (
            model.mesh_vert[first : first + count] @ data.geom_xmat[geom].reshape(3, 3).T
            + data.geom_xpos[geom]
        )
        name = model.mesh(mesh).name.split("/")[-1].removeprefix("menagerie_")
        found[model.body(int(model.geom_bodyid[geom])).name, name] = vertices
    return found


def same_place(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], T_ours_theirs: Matrix
) -> bool:
    moved = theirs @ T_ours_theirs[:3, :3].T + T_ours_theirs[:3, 3]
    return ours.shape == moved.shape and bool(np.abs(ours - moved).max() < NEAR_M)


def test_alohas_meshes_have_the_poses_of_the_published_model(folder: Path) -> None:
    """One transform between the frames serves both arms; its left finger is our right one."""
    ours = compiled(with_meshes(ALOHA_CELL))
    theirs = mujoco.MjModel.from_xml_path(str(folder / "aloha" / "aloha.xml"))
    ours_data = mujoco.MjData(ours)
    theirs_data = mujoco.MjData(theirs)
    rng = np.random.default_rng(1)
    other = {"left_finger": "right_finger", "right_finger": "left_finger"}
    for _ in range(POSES):
        for name in (theirs.joint(number).name for number in range(theirs.njnt)):
            arm, joint = name.split("/")
            q = rng.uniform(*theirs.joint(name).range)
            theirs_data.joint(name).qpos = q
            ours_data.joint(f"{arm}/{other.get(joint, joint)}").qpos = q
        mujoco.mj_kinematics(ours, ours_data)
        mujoco.mj_kinematics(theirs, theirs_data)
        here, there = drawn_meshes(ours, ours_data), drawn_meshes(theirs, theirs_data)
        assert len(there) == 2 * 10
        assert len(here) == len(there)
        for (body, mesh), vertices in there.items():
            arm, link = body.split("/")
            link = link.replace("left", "LEFT").replace("right", "left").replace("LEFT", "right")
            assert same_place(here[f"{arm}/{link}", mesh], vertices, MOVED), (body, mesh)


@pytest.mark.slow
def test_two_kuka_arms_have_the_meshes_of_one(folder: Path) -> None:
    cell = KUKA_BIMANUAL_CELL
    ours = compiled(with_meshes(cell))
    theirs = mujoco.MjModel.from_xml_path(str(folder / "kuka_iiwa_14" / "iiwa14.xml"))
    ours_data = mujoco.MjData(ours)
    theirs_data = mujoco.MjData(theirs)
    rng = np.random.default_rng(2)
    for _ in range(POSES):
        for number in range(1, 8):
            theirs_data.joint(f"joint{number}").qpos = q = rng.uniform(-1.5, 1.5)
            for arm in cell.embodiment.arms:
                ours_data.joint(f"{arm}/a{number}").qpos = q
        mujoco.mj_kinematics(ours, ours_data)
        mujoco.mj_kinematics(theirs, theirs_data)
        here, there = drawn_meshes(ours, ours_data), drawn_meshes(theirs, theirs_data)
        assert (len(here), len(there)) == (22, 11)
        for chain in cell.embodiment.chains:
            for (body, mesh), vertices in there.items():
                mine = "base_link" if body == "base" else body.replace("link", "link_")
                assert same_place(here[f"{chain.arm}/{mine}", mesh], vertices, chain.T_base_root), (
                    body,
                    mesh,
                )


def test_parts_without_meshes_stay_and_others_are_hidden() -> None:
    plain, model = compiled(KUKA_BIMANUAL_CELL.robot()), compiled(with_meshes(KUKA_BIMANUAL_CELL))
    drawn = {
        model.geom(geom).name for geom in range(model.ngeom) if model.geom_group[geom] == DRAWN
    }
    kept = ("stand", "left_finger", "left_pad", "right_finger", "right_pad")
    assert {name for name in drawn if "unnamed" not in name} == {
        f"{arm}/{name}" for arm in ("left", "right") for name in kept
    }
    boxes = [
        geom
        for geom in range(model.ngeom)
        if model.geom_group[geom] == DRAWN and model.geom_dataid[geom] < 0
    ]
    assert len(boxes) == 2 * (len(kept) + 2)  # And the hand with the housing of its camera.
    assert model.ngeom - plain.ngeom == 22
    assert (model.geom_contype > 0).sum() == (plain.geom_contype > 0).sum()
    colours = {
        tuple(round(float(value), 2) for value in model.geom_rgba[geom])
        for geom in range(model.ngeom)
    }
    assert {(1.0, 0.42, 0.04, 1.0), (0.4, 0.4, 0.4, 1.0)} <= colours
    aloha = compiled(with_meshes(ALOHA_CELL))
    drawn_kinds = {
        int(aloha.geom_type[geom]) for geom in range(aloha.ngeom) if aloha.geom_group[geom] == DRAWN
    }
    assert drawn_kinds == {int(mujoco.mjtGeom.mjGEOM_MESH)}
    assert (
        sum(np.allclose(aloha.geom_rgba[geom], (0.7, 0.7, 0.7, 1.0)) for geom in range(aloha.ngeom))
        == 2
    )
    bodies = list(drawn_bodies(aloha))  # For the page of teleoperation.
    assert len(bodies) == 2 * 9
    assert all(
        len(surface.faces) % 12 == 0 for body in bodies for surface in body.surfaces.values()
    ), "a box is twelve triangles"


def states(world: TaskEnvironment, actions: Array) -> list[Array]:
    """Returns the states of an episode with given actions."""
    world.begin(SEED)
    found = []
    for action in actions:
        found.append(world.physics.get_state())
        world.advance(action)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hand_over_banana", "kuka_pick"])
def test_episodes_with_contacts_are_equal_to_the_bit(task: str) -> None:
    with closing(TaskEnvironment(make_task(task), cameras=(), time_limit_s=20.0)) as world:
        recording = record_episode(world, make_expert(task), SEED)
        assert recording.success
        plain = states(world, recording.arrays["action"])
    with closing(
        TaskEnvironment(make_task(task), cameras=(), time_limit_s=20.0, robot_model="menagerie")
    ) as world:
        np.testing.assert_array_equal(states(world, recording.arrays["action"]), plain)


@pytest.fixture(scope="module")
def looks(folder: Path) -> dict[str, dict[str, Array]]:
    """The first observation of an episode by robot model."""
    seen = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENAGERIE_ROOT", str(folder))
        for model in ("primitives", "menagerie"):
            world = TaskEnvironment(
                make_task("kuka_pick"),
                image_size=48,
                segmentation=True,
                robot_model=cast("RobotModel", model),
            )
            world.begin(0, {"depth_noise": 0.0})
            seen[model] = dict(world.observe())
            world.close()
    return seen


@pytest.mark.slow
def test_only_images_of_arms_change(looks: dict[str, dict[str, Array]]) -> None:
    plain, meshes = looks["primitives"], looks["menagerie"]
    for key, value in plain.items():
        if not key.startswith(("rgb/", "depth/", "segmentation/")):
            np.testing.assert_array_equal(value, meshes[key], err_msg=key)
    arm = 2
    for camera in ("overhead", "wrist"):
        shown = [look[f"segmentation/{camera}"] for look in (plain, meshes)]
        others = (shown[0] != arm) & (shown[1] != arm)
        assert others.mean() > 0.3
        for kind in ("rgb", "depth"):
            np.testing.assert_array_equal(
                plain[f"{kind}/{camera}"][others], meshes[f"{kind}/{camera}"][others]
            )
    both = (plain["segmentation/overhead"] == arm) & (meshes["segmentation/overhead"] == arm)
    assert (plain["rgb/overhead"][both] != meshes["rgb/overhead"][both]).any()


@pytest.mark.slow
def test_episodes_store_the_robot_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of the two models are not mixed, and replays of episodes need no meshes."""
    recipe = Recipe(
        task="kuka_pick",
        image_size=16,
        time_limit_s=0.2,
        keep_failures=True,
        robot_model="menagerie",
        versions=world_versions("kuka_pick", {}),
    )
    store = EpisodeStore.create(tmp_path / "store")
    with closing(open_recipe_world(recipe)) as world:
        Attempt(recipe, store.path, 0).run(world)
    (episode,) = store.episodes()
    assert recorded_world(episode) == recipe
    assert {"rgb/overhead", "rgb/wrist"} < set(episode.arrays), "all cameras where none are named"
    with pytest.raises(
        ValueError, match=r"was collected with robot_model='menagerie' \(now 'primitives'\)"
    ):
        Collection(store, replace(recipe, robot_model="primitives"))
    assert Collection(store, recipe).tried == 1
    monkeypatch.delenv("MENAGERIE_ROOT")
    assert replay_episode(episode).difference < 1e-5  # Actions are stored as float32.


def test_without_a_folder_the_package_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package keeps downloaded files, and cannot download from a missing address."""
    monkeypatch.delenv("MENAGERIE_ROOT")
    monkeypatch.setenv("MENAGERIE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MENAGERIE_BASE_URL", (tmp_path / "nowhere").as_uri())
    with pytest.raises(
        ValueError,
        match=r"mujoco-menagerie cannot download aloha: .*nowhere.*not found. Set MENAGERIE_ROOT",
    ):
        with_meshes(ALOHA_CELL)
    kept = mujoco_menagerie.Cache().model_path(mujoco_menagerie.get("aloha"))
    menagerie_files.write_aloha(kept)
    (kept / ".complete").touch()
    assert compiled(with_meshes(ALOHA_CELL)).nmesh == 2 * 10
    (kept / "aloha.xml").unlink()
    with pytest.raises(
        ValueError,
        match=r"mujoco-menagerie is installed, but .* has no aloha.xml. Set MENAGERIE_ROOT",
    ):
        with_meshes(ALOHA_CELL)
    monkeypatch.setattr(
        "stringline.datasets.embodiments.embodiment_source.MENAGERIE_PACKAGE", "missing_menagerie"
    )
    with pytest.raises(
        ValueError,
        match=r"The models of MuJoCo Menagerie are not installed. Set MENAGERIE_ROOT to a copy",
    ):
        with_meshes(ALOHA_CELL)
