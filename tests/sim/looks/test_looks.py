"""Looks change images only; the seed draws them; held-out ones are never drawn in collection."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from stringline import EpisodeStore, TaskEnvironment, make_expert, record_episode
from stringline.datasets.command.choices import CONFIGS, choice_names, completed
from stringline.datasets.contract.contract import Array
from stringline.sim.collect import collect, open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import Recording
from stringline.sim.looks.families import HELD_OUT, SEEN, Family, Half, drawn
from stringline.sim.looks.looks import LOOKS
from stringline.sim.rendering.rendering import DEPTH_UNIT_M
from stringline.sim.tasks.task_registry import TASKS, make_task

TASK, SEED = "hand_over_banana", 3
COLOURS = 10_000
DRAWN_LOOKS = ("randomised", "held_out")
WORLD = {"image_size": 64, "segmentation": True}


def look(world: TaskEnvironment, looks: object, seed: int = SEED) -> dict[str, Array]:
    """Returns the first observation of an episode."""
    world.begin(seed, {"looks": looks})
    return {key: value.copy() for key, value in world.observe().items()}


def episode(world: TaskEnvironment, task: str, looks: str) -> Recording:
    return record_episode(world, make_expert(task), SEED, options={"looks": looks})


def same_course(task: str, looks: tuple[str, ...], seconds: float) -> bool:
    """Returns whether an expert's episode is the same in all looks; returns its success."""
    with closing(TaskEnvironment(make_task(task), cameras=(), time_limit_s=seconds)) as world:
        plain = episode(world, task, "plain")
        for name in looks:
            other = episode(world, task, name)
            assert (other.success, other.stage) == (plain.success, plain.stage)
            for key in ("sim/state", "action", "stage", "joints/position"):
                np.testing.assert_array_equal(other.arrays[key], plain.arrays[key], strict=True)
    return plain.success


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_states_and_actions_are_identical_to_the_bit(task: str) -> None:
    same_course(task, ("randomised",), 0.4)


@pytest.mark.stress
@pytest.mark.parametrize("task", TASKS)
def test_whole_episodes_are_identical_to_the_bit(task: str) -> None:
    assert same_course(task, LOOKS[1:], 30.0)


@pytest.mark.slow
def test_an_episode_in_plain_looks_has_no_trace_of_those_before(world: TaskEnvironment) -> None:
    before = look(world, "plain")
    look(world, "randomised")
    look(world, "textured")
    after = look(world, "plain")
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value, err_msg=key)
    assert world.drawn == {}


@pytest.mark.parametrize("looks", LOOKS[1:])
def test_looks_change_colours_and_measure_the_room(world: TaskEnvironment, looks: str) -> None:
    plain, other = look(world, "plain"), look(world, looks)
    differing = {key for key in plain if not np.array_equal(plain[key], other[key])}
    assert {key.partition("/")[0] for key in differing} <= {"rgb", "depth"}
    for camera in ("overhead", "table", "wrist_left", "wrist_right"):
        near = plain[f"depth/{camera}"].astype(int)
        away = np.abs(other[f"depth/{camera}"].astype(int) - near)[near > 0]
        assert away.max() * DEPTH_UNIT_M <= 0.001, "shadows lie on the table"
        assert (plain[f"rgb/{camera}"] != other[f"rgb/{camera}"]).mean() > 0.5


@pytest.mark.parametrize("looks", DRAWN_LOOKS)
def test_the_seed_alone_draws_the_looks(world: TaskEnvironment, looks: str) -> None:
    others = [look(world, looks, seed) for seed in (4, 5, SEED)]
    assert not np.array_equal(others[0]["rgb/table"], others[1]["rgb/table"])
    found = dict(world.drawn)
    with closing(TaskEnvironment(make_task(TASK), image_size=64)) as fresh:
        alone = look(fresh, looks)
        assert fresh.drawn == found
    for key in ("rgb/overhead", "rgb/table", "depth/table"):
        np.testing.assert_array_equal(alone[key], others[-1][key])


def test_textured_looks_are_the_same_in_each_episode(world: TaskEnvironment) -> None:
    found = []
    for seed in (4, 5):
        world.begin(seed, {"looks": "textured"})
        found.append(dict(world.drawn))
    assert found[0] == found[1]


def families(half: Half) -> set[Family]:
    return {*half.tables, *half.floors, *half.walls, *half.objects}


def test_held_out_looks_are_disjoint_from_those_of_collection() -> None:
    seen, held_out = families(SEEN), families(HELD_OUT)
    assert not {each.name for each in seen} & {each.name for each in held_out}
    assert not {each.pattern for each in seen} & {each.pattern for each in held_out}
    rng = np.random.default_rng(0)
    for half, own in ((SEEN, seen), (HELD_OUT, held_out)):
        for _ in range(50):
            choice = drawn(half, ("a", "b"), rng)
            assert {choice.table, choice.floor, choice.wall, *choice.objects.values()} <= own
            assert int(8 * half.turn(rng)) % 2 == half.sector


def test_lights_of_held_out_looks_come_from_other_directions(world: TaskEnvironment) -> None:
    sectors = {}
    for looks in DRAWN_LOOKS:
        found = set()
        for seed in range(3):
            world.begin(seed, {"looks": looks})
            for light in world.drawn["looks"]["lights"]:
                x, y, _ = light["direction"]
                found.add(int(np.arctan2(y, x) / (2 * np.pi) % 1 * 8))
        sectors[looks] = found
    assert not sectors["randomised"] & sectors["held_out"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hand_over_banana", "kuka_hand_over"])
def test_an_overhead_image_has_many_colours(task: str) -> None:
    assert colours(task) > COLOURS


@pytest.mark.stress
@pytest.mark.parametrize("task", TASKS)
def test_overhead_images_of_all_tasks_have_many_colours(task: str) -> None:
    assert colours(task) > COLOURS


def colours(task: str) -> int:
    """Returns the number of colours of an overhead image; it is neither dark nor overexposed."""
    with closing(TaskEnvironment(make_task(task), cameras=["overhead"], image_size=224)) as world:
        image = look(world, "textured", 0)["rgb/overhead"]
    assert (image == 255).mean() < 0.01
    assert (image.max(axis=-1) < 8).mean() < 0.02
    return len(np.unique(image.reshape(-1, 3), axis=0))


@pytest.mark.parametrize(
    ("looks", "message"),
    [
        ("texturd", r"There is no looks 'texturd'\. Did you mean 'textured'"),
        (1.0, r"There is no looks '1\.0'"),
        (["plain", "textured"], r"looks is .*; allowed: a value or \{one_of: \[A, B\]\}"),
    ],
)
def test_invalid_looks_are_refused(world: TaskEnvironment, looks: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world.check_options({"looks": looks})


@pytest.mark.parametrize("looks", ["held_out", {"one_of": ["plain", "held_out"]}])
def test_held_out_looks_cannot_be_collected(looks: Any) -> None:
    recipe = Recipe(cameras=(), options={"looks": looks})
    with pytest.raises(ValueError, match=r"looks=held_out is for evaluations; allowed in"):
        open_recipe_world(recipe)


def test_every_look_has_a_choice_of_the_commands() -> None:
    names = choice_names(CONFIGS, "looks")
    assert names == sorted(LOOKS)
    assert all(completed(CONFIGS, f"looks/{name}") == {"looks": name} for name in names)
    for command in ("collect", "eval", "teleop", "demo"):
        assert {"looks": None} in OmegaConf.load(CONFIGS / f"{command}.yaml").defaults


@pytest.mark.stress
def test_any_number_of_workers_collects_the_same_looks(tmp_path: Path) -> None:
    recipe = Recipe(
        cameras=("overhead",),
        image_size=32,
        time_limit_s=0.2,
        keep_failures=True,
        options={"looks": "randomised", "dim_light": [0.0, 1.0]},
    )
    found = []
    for workers in (1, 2):
        collect(recipe, tmp_path / str(workers), 4, workers=workers)
        store = EpisodeStore.open(tmp_path / str(workers))
        episodes = [store.episode(name) for name in store.names()]
        found.append(
            {
                each.attributes.seed: (
                    each.attributes.extra["drawn"],
                    each.arrays["rgb/overhead"].tobytes(),
                )
                for each in episodes
            }
        )
    assert found[0] == found[1]
    assert len({str(drawn) for drawn, _ in found[0].values()}) == 4
