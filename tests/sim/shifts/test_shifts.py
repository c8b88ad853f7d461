"""A shift changes its own property only, and for its own episode only."""

from collections.abc import Iterator, Mapping

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import TaskEnvironment, make_expert, record_episode
from stringline.datasets.command.choices import CONFIGS, choice_names, completed
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.transforms import inverse
from stringline.sim.collection.demonstration import Recording
from stringline.sim.shifts.shift import APART_M, CLEARANCE_M, KINDS, NAMES
from stringline.sim.tasks.task_registry import make_task

TASK, SEED = "hand_over_banana", 3
STILL = ("overhead", "table")
IMAGES_ONLY = tuple(name for name in NAMES if name != "distractors")
WORLD = {"image_size": 48, "segmentation": True}


@pytest.fixture(scope="module")
def blind() -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(make_task(TASK), cameras=(), time_limit_s=20.0)
    yield world
    world.close()


@pytest.fixture(scope="module")
def plain(blind: TaskEnvironment) -> Recording:
    """An episode of the expert without shifts."""
    return demonstration(blind, {})


def demonstration(world: TaskEnvironment, options: Mapping[str, float]) -> Recording:
    return record_episode(world, make_expert(TASK), SEED, options=options)


def look(world: TaskEnvironment, seed: int = SEED, /, **options: float) -> dict[str, Array]:
    """Returns the first observation of an episode."""
    world.begin(seed, options)
    return dict(world.observe())


def differing(a: Mapping[str, Array], b: Mapping[str, Array]) -> set[str]:
    return {key for key in a if not np.array_equal(a[key], b[key])}


def colours(observation: Mapping[str, Array]) -> NDArray[np.float64]:
    """Returns the mean colour (3,) of the images of static cameras."""
    return np.asarray(
        np.mean([observation[f"rgb/{camera}"].mean(axis=(0, 1)) for camera in STILL], axis=0)
    )


def standing(world: TaskEnvironment) -> dict[str, NDArray[np.float64]]:
    """Returns the positions of the distractors of this episode."""
    model = world.physics.model.ptr
    return {name: model.body(name).pos.copy() for name in KINDS if model.geom(name).group == 0}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        (name, {"rgb"})
        for name in ("dim_light", "bright_light", "side_light", "coloured_light", "object_colour")
    ]
    + [
        ("distractors", {"rgb", "depth", "segmentation"}),
        ("camera_pose", {"rgb", "depth", "segmentation", "T_base_camera"}),
        ("miscalibration", {"rgb", "depth", "segmentation"}),
        ("depth_noise", {"depth"}),
    ],
)
def test_a_shift_changes_its_own_property_for_one_episode(
    world: TaskEnvironment, name: str, kinds: set[str]
) -> None:
    before = look(world)
    state = world.physics.get_state().copy()
    shifted = look(world, **{name: 1.0})
    np.testing.assert_array_equal(world.physics.get_state(), state)
    again = look(world, **{name: 1.0})
    after = look(world)
    still = {
        key
        for key in differing(before, shifted)
        if not np.allclose(before[key], shifted[key], atol=1e-6)
    }
    assert {key.partition("/")[0] for key in still} == kinds
    assert not differing(shifted, again), "an episode is a function of its seed and options"
    assert not differing(before, after)
    assert not differing(before, look(world, **{name: 0.0}))


def test_every_shift_is_tested_and_has_a_choice() -> None:
    test = test_a_shift_changes_its_own_property_for_one_episode
    marks = test.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == set(NAMES)
    chosen = [completed(CONFIGS, f"shift/{name}") for name in choice_names(CONFIGS, "shift")]
    assert {key for choice in chosen for key in choice} == {*NAMES, "table_height"}


@pytest.mark.slow
def test_images_may_change_but_physics_stays_the_same_to_the_bit(
    blind: TaskEnvironment, plain: Recording
) -> None:
    shifted = demonstration(blind, dict.fromkeys(IMAGES_ONLY, 1.0))
    assert plain.success
    for key, value in plain.arrays.items():
        np.testing.assert_array_equal(shifted.arrays[key], value, err_msg=key)


@pytest.mark.slow
def test_distractors_keep_clear_of_the_expert(blind: TaskEnvironment, plain: Recording) -> None:
    crowded = demonstration(blind, {"distractors": 1.0})
    assert len(standing(blind)) >= 3
    np.testing.assert_array_equal(crowded.arrays["sim/state"], plain.arrays["sim/state"])


def test_other_seeds_draw_other_shifts(world: TaskEnvironment) -> None:
    gains = [
        colours(look(world, seed, coloured_light=1.0)) / colours(look(world, seed))
        for seed in (3, 4, 5)
    ]
    assert np.ptp(gains, axis=0).min() > 0.05
    world.begin(3, {"distractors": 1.0})
    first = standing(world)
    world.begin(4, {"distractors": 1.0})
    assert all(
        (first[name] != spot).any() for name, spot in standing(world).items() if name in first
    )


def test_light_follows_its_strength(world: TaskEnvironment) -> None:
    dim = [colours(look(world, dim_light=strength)).mean() for strength in (0.0, 0.5, 1.0)]
    bright = [colours(look(world, bright_light=strength)).mean() for strength in (0.0, 0.5, 1.0)]
    assert dim[1] == pytest.approx((dim[0] + dim[2]) / 2, rel=0.05)
    assert dim[2] < 0.25 * dim[0]
    assert bright[0] < bright[1] < bright[2]
    tinted = colours(look(world, coloured_light=1.0)) / colours(look(world))
    assert tinted.max() / tinted.min() > 2


def test_only_objects_change_their_colour(world: TaskEnvironment) -> None:
    model = world.physics.model.ptr
    look(world)
    own = model.geom_rgba.copy()
    look(world, object_colour=0.5)
    half = model.geom_rgba.copy()
    look(world, object_colour=1.0)
    objects = {
        model.geom_bodyid[number] for number in np.nonzero((model.geom_rgba != own).any(axis=1))[0]
    }
    assert {
        mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body).split("/")[0] for body in objects
    } == {"banana", "bowl"}
    away, halfway = (
        np.linalg.norm(colour - own, axis=1).max() for colour in (model.geom_rgba, half)
    )
    assert away > 0.3
    assert 0 < halfway < away
    np.testing.assert_array_equal(model.geom_rgba[:, 3], own[:, 3])


def test_moved_cameras_report_their_poses_and_miscalibrated_ones_do_not(
    world: TaskEnvironment,
) -> None:
    plain, moved, lost = look(world), look(world, camera_pose=1.0), look(world, miscalibration=1.0)
    for camera in STILL:
        key = f"T_base_camera/{camera}"
        step = inverse(plain[key].astype(float)) @ moved[key]
        assert 0.024 < np.linalg.norm(step[:3, 3]) < 0.051
        assert 2.4 < np.degrees(np.arccos((np.trace(step[:3, :3]) - 1) / 2)) < 5.1
        np.testing.assert_allclose(lost[key], plain[key], atol=1e-6)
    assert not differing({key: plain[key] for key in plain if "wrist" in key}, lost)
    assert np.abs(table_points(moved)[:, 2]).max() < 0.002
    assert np.abs(table_points(lost)[:, 2]).max() > 0.01


def table_points(observation: Mapping[str, Array]) -> NDArray[np.float64]:
    """Returns the table's points (N, 3) in the base frame by the overhead camera's report."""
    rows, columns = np.nonzero(
        (observation["segmentation/overhead"] == 1) & (observation["depth/overhead"] > 0)
    )
    depth = observation["depth/overhead"][rows, columns] * 0.001
    pixels = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))])
    in_camera = np.linalg.inv(observation["intrinsics/overhead"]) @ pixels * depth
    T_base_camera = observation["T_base_camera/overhead"].astype(float)
    return np.asarray((T_base_camera[:3, :3] @ in_camera + T_base_camera[:3, 3:]).T)


def test_weaker_distractors_are_a_subset(blind: TaskEnvironment) -> None:
    for seed in range(12):
        found = []
        for strength in (0.01, 0.5, 1.0):
            blind.begin(seed, {"distractors": strength, "table_height": 0.03})
            found.append({name: tuple(spot) for name, spot in standing(blind).items()})
        assert len(found[0]) <= 1
        assert found[0].items() <= found[1].items() <= found[2].items()
        assert 1 <= len(found[1]) <= 3
        assert 3 <= len(found[2]) <= len(KINDS)
        radii = {name: KINDS[name].radius for name in found[2]}
        names = list(found[2])
        for number, name in enumerate(names):
            for other in names[:number]:
                apart = np.hypot(*np.subtract(found[2][name], found[2][other])[:2])
                if KINDS[name].on_table == KINDS[other].on_table:
                    assert apart > radii[name] + radii[other] + APART_M
            if KINDS[name].on_table:
                assert found[2][name][2] == pytest.approx(KINDS[name].middle + 0.03)
                for prop in blind.task.props.values():
                    spot = blind.task.pose(blind.physics, prop)[:2, 3]
                    assert (
                        np.hypot(*(found[2][name][:2] - spot))
                        > radii[name] + prop.reach + CLEARANCE_M
                    )
    blind.begin(0)
    assert not standing(blind)


def test_depth_noise_is_drawn_anew_for_each_frame_and_camera(world: TaskEnvironment) -> None:
    first = look(world, depth_noise=1.0)
    for _ in range(4):
        world.advance(world.task.embodiment.home)
    error = {
        camera: world.observe()[f"depth/{camera}"].astype(float) - first[f"depth/{camera}"]
        for camera in STILL
    }
    assert all(np.abs(value).max() > 0 for value in error.values())
    alone = TaskEnvironment(world.task.__class__(50.0), cameras=("table",), image_size=48)
    np.testing.assert_array_equal(look(alone, depth_noise=1.0)["depth/table"], first["depth/table"])
    alone.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim_lihgt": 1.0}, r"There is no task option 'dim_lihgt'\. Did you mean 'dim_light'"),
        ({"distractor": 1.0}, r"Did you mean 'distractors'"),
        ({"dim_light": -0.5}, r"dim_light must be a number from 0 to 1 \(got -0\.5\)"),
        ({"camera_pose": 2}, r"camera_pose must be a number from 0 to 1 \(got 2\)"),
        ({"depth_noise": float("nan")}, r"depth_noise must be .*got nan"),
        ({"side_light": float("inf")}, r"side_light must be .*got inf"),
        ({"object_colour": "red"}, r"object_colour must be .*got 'red'"),
        ({"distractors": True}, r"distractors must be .*got True"),
        ({"distractors": None}, r"distractors must be .*got None"),
        ({"table_height": 0.1}, r"table_height must be a number from -0\.05 to 0\.08 m \(got 0\.1"),
        (
            {"table_height": "high"},
            r"table_height must be a number from -0\.05 to 0\.08 m \(got 'hi",
        ),
    ],
)
def test_invalid_options_are_refused(
    blind: TaskEnvironment, options: dict[str, float], message: str
) -> None:
    task = blind.task
    task.configure(table_height=0.01, dim_light=0.5)
    with pytest.raises(ValueError, match=message):
        task.configure(**{"table_height": 0.02, **options})
    assert (task.table_height, dict(task.strengths)) == (0.01, {"dim_light": 0.5})


def test_depth_is_that_of_a_sensor_by_default_in_the_kuka_cell_and_true_in_that_of_aloha() -> None:
    kuka = make_task("kuka_pick")
    assert kuka.strengths == {"depth_noise": 1.0}
    kuka.configure(dim_light=0.5)
    assert kuka.strengths == {"depth_noise": 1.0, "dim_light": 0.5}
    kuka.configure(depth_noise=0.0)
    assert kuka.strengths == {"depth_noise": 0.0}
    assert make_task(TASK).strengths == {}
