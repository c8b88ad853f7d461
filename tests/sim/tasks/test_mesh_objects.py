"""Tasks whose objects are meshes of a folder: picked by the built-in expert, told by the digest."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.sim.mesh_boxes import BOTTOM, TOP
from tests.sim.props.test_mesh_folder import write_boxes

from stringline import Graspable, KukaPick, MeshFolder, TaskEnvironment, make_expert, record_episode
from stringline.sim.experts.kuka_experts import KukaPickExpert
from stringline.sim.worlds.world_versions import physics_digest

pytest.importorskip("trimesh")

NAME = f"{__name__}:PickBoxes"
SEEDS = 6


class PickBoxes(KukaPick):
    """Boxes of several sizes, upright, with a texture of two halves."""

    name: ClassVar[str] = NAME
    source: ClassVar[MeshFolder]

    @classmethod
    def make_objects(cls) -> Sequence[Graspable]:
        """Returns the objects of the folder of this test."""
        return cls.source.objects()


@pytest.fixture(scope="module", autouse=True)
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_boxes(tmp_path_factory.mktemp("boxes"), 10)
    PickBoxes.source = MeshFolder(folder, count=4)
    return folder


@pytest.fixture(scope="module")
def world(boxes: Path) -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(PickBoxes(), image_size=128, segmentation=True, time_limit_s=12.0)
    yield world
    world.close()


@pytest.mark.slow
def test_the_expert_of_the_base_class_picks_them(world: TaskEnvironment) -> None:
    expert = make_expert(NAME)
    assert isinstance(expert, KukaPickExpert)
    results = [record_episode(world, expert, seed) for seed in range(SEEDS)]
    assert all(result.success for result in results), [result.error for result in results]
    drawn = {world.begin(seed) or world.task.object.name for seed in range(20)}
    assert len(drawn) == 4, "every object of the folder is drawn"


@pytest.mark.parametrize("looks", ["plain", "randomised"])
def test_objects_keep_their_textures(world: TaskEnvironment, looks: str) -> None:
    """One half of each side is red and the other one blue."""
    observation, _ = world.reset(seed=3, options={"looks": looks})
    number = world.segments.index(world.task.object.name)
    pixels = observation["rgb/overhead"][observation["segmentation/overhead"] == number].astype(int)
    assert len(pixels) > 20
    for colour in (TOP, BOTTOM):
        hue = np.argmax(colour)
        assert (pixels[:, hue] - pixels[:, 2 - hue] > 30).sum() > len(pixels) / 10


def test_the_digest_contains_the_hulls(boxes: Path) -> None:
    first = physics_digest(NAME, True, False)
    physics_digest.cache_clear()
    PickBoxes.source = MeshFolder(boxes, count=4, held_out=True, share=0.5)
    assert first not in {
        physics_digest(NAME, True, False),
        physics_digest("kuka_pick", True, False),
    }
