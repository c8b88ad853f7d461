"""Point clouds of an analytic scene: a table and a box, seen by two cameras; and their cache."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.policies.demonstrations import CAMERAS, CONTRACT, episode, make_store

from stringline import ALOHA, Camera, EpisodeAttributes, EpisodeStore
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.transforms import looking_at
from stringline.datasets.loading import workspace_clouds
from stringline.datasets.loading.workspace_clouds import (
    CloudCache,
    CloudMaker,
    CloudSettings,
    Workspace,
    check_cloud_cameras,
    cloud_dtype,
    held_points,
    limit_size,
)

Floats = NDArray[np.float64]
SIZE = 64
K = np.array([[60.0, 0, 32], [0, 60.0, 32], [0, 0, 1]])
BOX = np.array([-0.05, 0.0, 0.0]), np.array([0.05, 0.1, 0.12])
TABLE, BLUE, RED = 0.0, (0, 0, 255), (255, 0, 0)
CAMERA_POSES = {
    "front": looking_at((0.0, -0.6, 0.5), (0.0, 0.05, 0.0)),
    "side": looking_at((0.6, 0.1, 0.4), (0.0, 0.05, 0.0)),
}
SEEN_BY = [Camera(name, SIZE, SIZE, "simulated") for name in CAMERA_POSES]
WORKSPACE = Workspace((-0.3, -0.3, -0.05), (0.3, 0.3, 0.4))
AWAY = ALOHA.home


def rendered(T_base_camera: Floats) -> tuple[Array, Array]:
    """Returns colour and depth (mm) of the table and the box on it."""
    v, u = np.mgrid[:SIZE, :SIZE] + 0.5
    rays = np.stack(((u - 32) / 60, (v - 32) / 60, np.ones_like(u)), -1)
    way = rays @ T_base_camera[:3, :3].T
    eye = T_base_camera[:3, 3]
    table = np.where(way[..., 2] < -1e-6, (TABLE - eye[2]) / way[..., 2], np.inf)
    ends = (np.stack(BOX) - eye)[:, None, None] / way
    enters = np.minimum(*ends).max(-1)
    box = np.where((enters < np.maximum(*ends).min(-1)) & (enters > 0), enters, np.inf)
    depth = np.minimum(table, box)
    colours = np.where((box < table)[..., None], RED, BLUE).astype(np.uint8)
    known = np.isfinite(depth) & (depth < 3)
    return colours, np.where(known, depth * 1000, 0).round().astype(np.uint16)


def scene(**changes: Array) -> dict[str, Array]:
    seen: dict[str, Array] = {"joints/position": AWAY}
    for name, T in CAMERA_POSES.items():
        colours, depth = rendered(T)
        seen |= {
            f"rgb/{name}": colours,
            f"depth/{name}": depth,
            f"intrinsics/{name}": K,
            f"T_base_camera/{name}": T,
        }
    return seen | changes


def maker(settings: CloudSettings | None = None, *, robot: bool = False) -> CloudMaker:
    embodiment = ALOHA if robot else None
    return CloudMaker(SEEN_BY, WORKSPACE, embodiment, settings or CloudSettings())


def test_points_are_on_the_surfaces_in_their_colours() -> None:
    cloud = maker()(scene())
    points = cloud.points[: cloud.count].astype(float)
    outside = np.maximum(np.maximum(BOX[0] - points, points - BOX[1]), 0)
    inside = np.minimum(points - BOX[0], BOX[1] - points).min(1)
    from_box = np.linalg.norm(outside, axis=1) + np.maximum(inside, 0)
    from_table = np.abs(points[:, 2] - TABLE)
    assert np.minimum(from_box, from_table).max() < CloudSettings().voxel_m
    high = points[:, 2] > 0.02
    assert high.sum() > 50
    assert (cloud.colours[: cloud.count][high, 0] > 150).all()
    flat = from_box > 0.03
    assert (cloud.colours[: cloud.count][flat, 2] > 250).all()
    assert abs(cloud.support - TABLE) < 0.003
    assert (cloud.points[cloud.count :] == 0).all()


def test_the_same_observation_gives_the_same_bytes_and_the_order_of_cameras_the_same_places() -> (
    None
):
    first, second = (maker()(scene()) for _ in range(2))
    assert first.points.tobytes() == second.points.tobytes()
    assert first.colours.tobytes() == second.colours.tobytes()
    swapped = CloudMaker(SEEN_BY[::-1], WORKSPACE, None, CloudSettings())(scene())
    assert swapped.count == first.count
    np.testing.assert_allclose(swapped.points, first.points, atol=1e-5)


@pytest.mark.parametrize(("points", "support"), [(2048, 400), (256, 100), (256, 10), (64, 400)])
def test_at_most_the_wanted_points_and_points_of_the_support(points: int, support: int) -> None:
    settings = CloudSettings(points=points, support_points=support)
    cloud = maker(settings)(scene())
    assert cloud.points.shape == (points, 3)
    assert 0 < cloud.count <= points
    low = cloud.points[: cloud.count, 2] <= cloud.support + 0.005
    assert low.sum() <= support


def test_the_robot_is_not_in_the_cloud() -> None:
    """A wall of points through the capsules of an arm; those near them are removed."""
    q = ALOHA.home
    axes = ALOHA.capsule_axes(q).reshape(-1, 2, 3)
    radii = np.array([mount.radius for mount in ALOHA.capsule_mounts] * len(ALOHA.arms))
    hand = ALOHA.forward_kinematics(q)["left"][:3, 3]
    box = Workspace(tuple(hand - 0.2), tuple(hand + 0.2))  # type: ignore[arg-type]
    T = looking_at(tuple(hand + np.array([0.0, -0.5, 0.05])), tuple(hand))
    seen = scene()
    for name in CAMERA_POSES:
        seen[f"T_base_camera/{name}"] = T
        seen[f"depth/{name}"] = np.full((SIZE, SIZE), 500, np.uint16)
    found = {}
    for robot in (None, ALOHA):
        cloud = CloudMaker(SEEN_BY, box, robot, CloudSettings())(seen)
        points = cloud.points[: cloud.count].astype(float)
        start = axes[:, 0]
        along = axes[:, 1] - start
        share = ((points[:, None] - start) * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-9)
        on = start + np.clip(share, 0, 1)[..., None] * along
        gap = np.linalg.norm(points[:, None] - on, axis=-1) - radii
        above = points[:, 2] > cloud.support + 0.005
        found[robot] = gap.min(1)[above]
    assert found[None].min() < 0
    assert found[ALOHA].min() >= 0.008 - 1e-4
    assert len(found[ALOHA]) > 20


def test_an_empty_workspace_is_named_with_its_box() -> None:
    far = CloudMaker(SEEN_BY, Workspace((2, 2, 2), (3, 3, 3)), None, CloudSettings())
    with pytest.raises(ValueError, match=r"2\.0.*margin_m"):
        far(scene())


@pytest.mark.parametrize("corner", [(-4.0, 0.0, 0.0), (0.0, 3.5, 0.0)])
def test_a_workspace_beyond_what_is_stored_is_refused(corner: tuple[float, float, float]) -> None:
    """Stored points are 16-bit numbers of 0.1 mm."""
    low = tuple(np.array(corner) - 0.2)
    high = tuple(np.array(corner) + 0.2)
    with pytest.raises(ValueError, match="workspace"):
        CloudMaker(SEEN_BY, Workspace(low, high), None, CloudSettings())  # type: ignore[arg-type]


def test_an_observation_without_any_depth_is_refused_in_words() -> None:
    seen = {key: value for key, value in scene().items() if not key.startswith("depth/")}
    with pytest.raises(ValueError, match="depth"):
        maker()(seen)


@pytest.mark.parametrize(
    ("camera", "lacks"),
    [
        (replace(SEEN_BY[0], depth=None), "no depth"),
        (replace(SEEN_BY[0], depth=None, has_geometry=False), "no depth and no calibration"),
    ],
)
def test_cameras_without_depth_or_calibration_are_named_with_both_ways_out(
    camera: Camera, lacks: str
) -> None:
    with pytest.raises(ValueError, match=lacks) as error:
        check_cloud_cameras([camera, SEEN_BY[1]])
    assert "front" in str(error.value)
    assert "cameras=[NAME]" in str(error.value)
    assert "observation_encoder=places" in str(error.value)


def test_what_a_gripper_carries_is_marked() -> None:
    """A cube moves with the gripper over a table with a second cube that stays."""
    random = np.random.default_rng(0)
    cube = random.uniform(-0.02, 0.02, (60, 3))
    frames = 10
    records = np.zeros(frames, cloud_dtype(256))
    poses = np.tile(np.eye(4, dtype=np.float32), (frames, 1, 1, 1))
    for frame in range(frames):
        poses[frame, 0, :3, 3] = [0.03 * frame, 0.0, 0.2]
        table = np.column_stack((random.uniform(-0.3, 0.3, (100, 2)), np.zeros(100)))
        still = cube + np.array([0.15, 0.1, 0.02])
        points = np.concatenate((cube + poses[frame, 0, :3, 3], still, table))
        records["points"][frame, : len(points)] = np.round(points * 1e4)
        records["count"][frame] = len(points)
    away = np.arange(3, frames)
    held = held_points(records, poses, [(0, away, np.arange(1, frames))])
    assert held[1:, :60].mean() > 0.95
    assert held[1:, 60:].mean() < 0.02
    assert (held[0] == 0).all()
    assert (held_points(records, poses, []) == 0).all()
    assert set(
        np.unique(held_points(records, np.tile(poses, (1, 2, 1, 1)), [(1, away, away)]))
    ) == {
        0,
        2,
    }


@pytest.fixture
def cloud_cache(tmp_path: Path) -> CloudCache:
    cameras = [CONTRACT.camera(name) for name in CAMERAS[:2]]
    wide = Workspace((-2.0, -2.0, -2.0), (2.0, 2.0, 2.0))
    settings = CloudSettings(points=64, voxel_m=0.05)
    return CloudCache(CloudMaker(cameras, wide, ALOHA, settings), tmp_path / "cache")


SPANS = [(0, np.arange(1, 4), np.arange(1, 4))]


def records_of(cache: CloudCache, store: EpisodeStore, name: str) -> Array:
    steps = np.arange(0, 20, 5)
    (found,) = cache.records([store.episode(name)], [steps], [SPANS])
    return found


def files_of(cache: CloudCache) -> set[Path]:
    return set(cache.folder.rglob("*.npy"))


def test_clouds_are_found_by_content_not_by_name(cloud_cache: CloudCache, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", 2)
    first = records_of(cloud_cache, store, store.names()[0])
    assert len(files_of(cloud_cache)) == 1
    again = make_store(tmp_path / "other", 3)
    np.testing.assert_array_equal(records_of(cloud_cache, again, again.names()[0]), first)
    assert len(files_of(cloud_cache)) == 1
    assert not np.array_equal(records_of(cloud_cache, store, store.names()[1]), first)
    assert len(files_of(cloud_cache)) == 2


@pytest.mark.parametrize("key", ["rgb/overhead", "depth/overhead", "T_base_gripper/left"])
def test_whatever_decides_a_cloud_makes_a_new_one(
    cloud_cache: CloudCache, tmp_path: Path, key: str
) -> None:
    store = make_store(tmp_path / "store", 1)
    records_of(cloud_cache, store, store.names()[0])
    arrays = episode(0)
    arrays[key] = arrays[key].copy()
    arrays[key].flat[7] += 1
    other = EpisodeStore.create(tmp_path / "other")
    other.write(arrays, EpisodeAttributes(CONTRACT, "move", 0, True))
    records_of(cloud_cache, other, other.names()[0])
    assert len(files_of(cloud_cache)) == 2


def test_an_interrupted_write_leaves_nothing_behind(
    cloud_cache: CloudCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store", 1)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr("os.replace", broken)
        changed.setattr("pathlib.Path.replace", broken)
        with pytest.raises(KeyboardInterrupt):
            records_of(cloud_cache, store, store.names()[0])
    assert not files_of(cloud_cache)
    assert len(records_of(cloud_cache, store, store.names()[0])) == 4


def test_a_file_of_the_cache_is_one_of_numpy_and_a_damaged_one_is_named(
    cloud_cache: CloudCache, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", 1)
    records = records_of(cloud_cache, store, store.names()[0])
    (file,) = files_of(cloud_cache)
    np.testing.assert_array_equal(np.load(file), records)
    whole = file.read_bytes()
    for left in (0, 10, len(whole) - 1):
        file.write_bytes(whole[:left])
        with pytest.raises(ValueError, match=rf"(?s){file.name} cannot be read.*Remove this file"):
            records_of(cloud_cache, store, store.names()[0])


def test_the_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    for number in range(4):
        file = tmp_path / "a" / f"{number}.npy"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(100))
        os.utime(file, (number, number))
    limit_size(tmp_path, 250, keep=[tmp_path / "a" / "0.npy"])
    assert sorted(file.name for file in tmp_path.rglob("*.npy")) == ["0.npy", "3.npy"]


def test_settings_that_decide_a_cloud_decide_its_file() -> None:
    plain = maker().digest
    assert maker().digest == plain
    assert maker(CloudSettings(voxel_m=0.01)).digest != plain
    assert maker(robot=True).digest != plain
    thick = [replace(mount, radius=mount.radius + 0.001) for mount in ALOHA.capsule_mounts]
    other = replace(ALOHA, capsule_mounts=tuple(thick))
    assert CloudMaker(SEEN_BY, WORKSPACE, other, CloudSettings()).digest not in (
        plain,
        maker(robot=True).digest,
    )
    moved = replace(WORKSPACE, low=(-0.31, -0.3, -0.05))
    assert CloudMaker(SEEN_BY, moved, None, CloudSettings()).digest != plain
    assert workspace_clouds.UNIT_M == 1e-4
