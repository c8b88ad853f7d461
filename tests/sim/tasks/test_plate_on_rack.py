"""Success needs the plate on edge between the rack's tines."""

import numpy as np
import pytest
from tests.sim.episodes import place_at, stay

from stringline import Matrix, TaskEnvironment, make_expert, pose, rotation_about
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.datasets.embodiments.transforms import inverse
from stringline.sim.tasks.dish_tasks import PlateOnRack

X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
ON_EDGE = rotation_about(X, -np.pi / 2)  # Its face looks along the rack's y axis.
TASK = PlateOnRack.name
WORLD = {"cameras": (), "time_limit_s": 30.0}


def in_slot(task: PlateOnRack, slot: int) -> Matrix:
    """Returns the plate on edge in the middle of a slot, 1 mm above the floor."""
    return pose(
        (0.0, task.rack.slots[slot] - task.plate.height / 2, task.rack.floor + 0.106), ON_EDGE
    )


def put(world: TaskEnvironment, task: PlateOnRack, T_rack_plate: Matrix) -> None:
    """Puts the plate somewhere relative to the rack."""
    place_at(world, task.plate, task.rack, T_rack_plate)


@pytest.mark.parametrize(("slot", "height"), [(0, 0.0), (1, -0.03), (2, 0.06), (3, 0.0)])
def test_a_plate_on_edge_in_a_slot_counts(
    world: TaskEnvironment, task: PlateOnRack, slot: int, height: float
) -> None:
    world.begin(0, {"table_height": height})
    put(world, task, in_slot(task, slot))
    assert not stay(world, seconds=0.4).success
    assert stay(world, seconds=2.0).success
    tilt = np.degrees(np.arccos(abs(task.pose(world.physics, task.plate)[2, 2])))
    assert 70 < tilt <= 90


@pytest.mark.parametrize(
    "T_rack_plate",
    [
        pose((0.0, 0.11, 0.03)),  # Flat in the bay.
        pose((0.0, -0.11, 0.13)),  # Flat on the tines.
        pose((-0.3, 0.0, 0.12), ON_EDGE),  # On edge on the table.
        pose(
            (-0.21, 0.0, 0.06), rotation_about(Y, np.radians(-55))
        ),  # Leaning on the wall from outside.
        pose(
            (0.0, 0.025, 0.125), ON_EDGE
        ),  # On edge in the bay; it falls or leans on the last tines.
        pose(
            (0.0, -0.112, 0.19), rotation_about((0.0, 0.0, 1.0), np.pi / 2) @ ON_EDGE
        ),  # Across the rows.
    ],
)
def test_near_misses_are_refused(
    world: TaskEnvironment, task: PlateOnRack, T_rack_plate: Matrix
) -> None:
    world.begin(1)
    put(world, task, T_rack_plate)
    assert not stay(world, seconds=1.8).success
    assert task.stage == 0


@pytest.mark.parametrize(
    ("lean_deg", "shift", "raised", "on_rack"),
    [
        (0.0, 0.0, 0.0, True),
        (8.0, 0.0, 0.0, True),
        (48.0, 0.0, 0.0, False),  # Through the tines.
        (0.0, 0.024, 0.0, False),  # In a row of tines.
        (0.0, 0.0, 0.01, False),  # Above the floor.
    ],
)
def test_a_slot_has_bounds(
    task: PlateOnRack, lean_deg: float, shift: float, raised: float, on_rack: bool
) -> None:
    lean = rotation_about(X, np.radians(lean_deg))
    T_rack_plate = in_slot(task, 1)
    foot = np.array([0.0, T_rack_plate[1, 3], task.rack.floor])
    T_rack_plate = (
        pose(foot) @ pose((0.0, shift, raised)) @ pose(rotation=lean) @ pose(-foot) @ T_rack_plate
    )
    T_rack_plate[2, 3] += (
        task.rack.floor - (task.edges @ T_rack_plate[2, :3] + T_rack_plate[2, 3]).min() + raised
    )
    assert task.on_rack(T_rack_plate) is on_rack


def test_a_tipped_rack_is_refused(world: TaskEnvironment, task: PlateOnRack) -> None:
    world.begin(2)
    for _ in range(40):
        task.place(
            world.physics, task.rack, pose((0.0, 0.25, 0.05), rotation_about(X, np.radians(8)))
        )
        put(world, task, in_slot(task, 1))
        assert not world.advance(START_POSE).success


@pytest.mark.slow
def test_the_expert_passes_all_stages_and_releases_the_plate(
    world: TaskEnvironment, task: PlateOnRack
) -> None:
    expert = make_expert(task.name)
    world.begin(3)
    expert.reset(world, np.random.default_rng(3))
    stages, held_in_slot = [0], False
    result = world.advance(expert.act(world))
    while not (result.success or result.expired):
        target = expert.act(world)
        result = world.advance(target)
        stages.append(result.stage)
        T_rack_plate = inverse(task.pose(world.physics, task.rack)) @ task.pose(
            world.physics, task.plate
        )
        if not held_in_slot and task.on_rack(T_rack_plate):
            held_in_slot = True
            assert not stay(world, target, 1.0).success
            assert task.stages[task.stage] == "over_rack"
    assert held_in_slot
    assert result.success
    assert sorted(set(stages)) == [0, 1, 2, 3, 4]


def test_starts_of_the_plate_fill_their_range(world: TaskEnvironment, task: PlateOnRack) -> None:
    places = []
    for seed in range(40):
        world.begin(seed)
        places.append(task.pose(world.physics, task.plate)[:3, 3])
        contacts = task.contact_state(world.physics)
        assert not contacts.by_any_arm(task.props)
        assert not contacts.between("rack", "plate")
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    assert (low >= (-0.25, -0.2, -1e-6)).all()
    assert (high <= (0.0, 0.0, 1e-6)).all()
    assert (high - low > (0.2, 0.1, -1.0)).all()
