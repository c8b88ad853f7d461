"""Point clouds of the workspace in front of a robot, fused from all its RGB-D cameras.

A cloud is the input of policies whose patches are voxels in space. Pixels with depth are
back-projected to the base frame; those outside of the workspace and those on the robot itself are
removed, and the rest is averaged in small voxels. So one cloud of 2,048 points takes the place of
the images of all cameras. Clouds of recordings are made once and kept in a cache.

No array is drawn at random: what is kept where there are too many points is decided by a hash of
the voxel, so the same observation gives the same cloud to the bit.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE, POSITIVE
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.files.atomic import write_file
from stringline.datasets.loading.statistics import KeyStatistics, gripper_statistics
from stringline.datasets.store.episode import StoredEpisode

logger = logging.getLogger(__name__)
Floats = NDArray[np.float32]
PREFIX = "cloud/"
UNIT_M = 1e-4
"""Resolution of stored points."""
FARTHEST_M = 3.2
"""Largest coordinate of a workspace, m: stored points are 16-bit numbers."""
SUPPORT_BIN_M = 0.01
ROUNDED_M = 0.05
CACHE_BYTES = 20 * 10**9
_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class CloudSettings:
    """How clouds are made.

    Attributes:
        points: Largest number of points of a cloud.
        voxel_m: Points in a voxel of this size are averaged, m.
        robot_margin_m: Points within this distance of the capsules around the robot's links are
            removed, m.
        support_points: Largest number of points of the support, such as the table.
        margin_m: The workspace is the box of all gripper positions in the data, extended sideways
            by this margin, m ...
        below_m: ... downwards by this one ...
        above_m: ... and upwards by this one.
    """

    points: int = 2048
    voxel_m: float = 0.008
    robot_margin_m: float = 0.008
    support_points: int = 400
    margin_m: float = 0.22
    below_m: float = 0.08
    above_m: float = 0.12

    def __post_init__(self) -> None:
        COUNT.check(points=self.points, support_points=self.support_points)
        POSITIVE.check(voxel_m=self.voxel_m)
        NOT_NEGATIVE.check(
            robot_margin_m=self.robot_margin_m,
            margin_m=self.margin_m,
            below_m=self.below_m,
            above_m=self.above_m,
        )


@dataclass(frozen=True)
class Workspace:
    """A box in the base frame, m: lower and upper corner (3,)."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]

    @classmethod
    def around(cls, grippers: KeyStatistics, settings: CloudSettings) -> Self:
        """Returns the workspace of a data set, given the statistics of its gripper positions.

        It is rounded outwards to 5 cm: a few more recordings then seldom change it, and with it all
        clouds.
        """
        below = np.array([settings.margin_m, settings.margin_m, settings.below_m])
        above = np.array([settings.margin_m, settings.margin_m, settings.above_m])
        low = np.floor((grippers.min - below) / ROUNDED_M) * ROUNDED_M
        high = np.ceil((grippers.max + above) / ROUNDED_M) * ROUNDED_M
        return cls(tuple(low.round(3).tolist()), tuple(high.round(3).tolist()))


@dataclass(frozen=True)
class Cloud:
    """A cloud with P places, of which `count` are points.

    Attributes:
        points: (P, 3) m in the base frame; zero beyond `count`.
        colours: (P, 3) uint8, sRGB.
        count: Number of points.
        support: Height of the support, such as the table, m: the level layer of 1 cm with the most
            points.
    """

    points: Floats
    colours: NDArray[np.uint8]
    count: int
    support: float


def check_cloud_cameras(cameras: Sequence[Camera], purpose: str = "Point clouds") -> None:
    """Raises a ValueError that names what cameras lack, and the ways out."""
    missing = [
        f"{camera.name} has no {' and no '.join(lacks)}"
        for camera in cameras
        if (
            lacks := [
                name
                for name, known in (
                    ("depth", camera.depth is not None),
                    ("calibration", camera.has_geometry),
                )
                if not known
            ]
        )
    ]
    if missing or not cameras:
        raise ValueError(
            f"{purpose} need depth and calibration of every camera; {'; '.join(missing) or 'none'}"
            " is there. Choose the cameras that have both "
            "(policy.observation_encoder.cameras=[NAME]), or use images: "
            "policy/observation_encoder=places."
        )
    for camera in cameras:
        if camera.distortion_model != "none":
            raise ValueError(
                f"Camera {camera.name!r} has {camera.distortion_model!r} distortion; undistort its "
                "images first."
            )


class CloudMaker:
    """Makes the clouds of one robot.

    Args:
        cameras: The cameras to fuse, with depth and calibration.
        workspace: Points outside are dropped.
        embodiment: Its links are removed; if None, nothing is removed.
        settings: See `CloudSettings`.
    """

    def __init__(
        self,
        cameras: Sequence[Camera],
        workspace: Workspace,
        embodiment: Embodiment | None,
        settings: CloudSettings,
    ) -> None:
        check_cloud_cameras(cameras)
        farthest = max(map(abs, (*workspace.low, *workspace.high)))
        if farthest > FARTHEST_M:
            raise ValueError(
                f"The workspace {workspace.low} to {workspace.high} m reaches {farthest:g} m from "
                f"the origin of the base frame; allowed: up to {FARTHEST_M:g} m. Use a base frame "
                "near the robot, or set policy.observation_encoder.clouds.margin_m."
            )
        self.cameras = tuple(cameras)
        self.workspace = workspace
        self.embodiment = embodiment
        self.settings = settings
        self._low = np.array(workspace.low, np.float32)
        self._high = np.array(workspace.high, np.float32)
        if embodiment is not None:
            radii = [mount.radius for mount in embodiment.capsule_mounts]
            reach = np.array(radii * len(embodiment.arms), np.float32) + settings.robot_margin_m
            self._squared_reach = (reach**2).astype(np.float32)

    @cached_property
    def digest(self) -> str:
        """Identifier of everything that decides the clouds of given images."""
        plain = [
            _FORMAT,
            [[camera.name, camera.depth_unit_m] for camera in self.cameras],
            asdict(self.workspace),
            _shape_of(self.embodiment) if self.embodiment else None,
            asdict(self.settings),
        ]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:20]

    def __call__(self, observation: Mapping[str, Array]) -> Cloud:
        """Makes the cloud of an observation of the contract.

        Args:
            observation: `rgb`, `depth`, `intrinsics` and `T_base_camera` of each camera that is
                there, and `joints/position`.

        Raises:
            ValueError: The workspace contains no points, or no camera with depth is there.
        """
        parts = [
            self._back_projected(observation, camera)
            for camera in self.cameras
            if f"depth/{camera.name}" in observation
        ]
        if not parts:
            raise ValueError(
                "The observation has no depth of any camera; a point cloud needs that of one of "
                f"{', '.join(camera.name for camera in self.cameras)}."
            )
        points = np.concatenate([part[0] for part in parts])
        colours = np.concatenate([part[1] for part in parts])
        inside = ((points > self._low) & (points < self._high)).all(axis=1)
        if not inside.any():
            box = " to ".join(str(np.round(end, 2).tolist()) for end in (self._low, self._high))
            raise ValueError(
                f"There is no point in the workspace {box} m of the base frame; the cameras "
                f"{', '.join(camera.name for camera in self.cameras)} see {len(points)} points "
                "elsewhere. Check their calibration, or set "
                "policy.observation_encoder.clouds.margin_m."
            )
        points, colours, keys = self._averaged(points[inside], colours[inside])
        support = _support(points[:, 2])
        above = points[:, 2] > support + SUPPORT_BIN_M / 2
        free = ~above
        free[above] = self._off_robot(points[above], observation)
        chosen = self._chosen(points, keys, free, above)
        places = self.settings.points
        filled = np.zeros((places, 3), np.float32)
        shade = np.zeros((places, 3), np.uint8)
        filled[: len(chosen)] = points[chosen]
        shade[: len(chosen)] = colours[chosen].round()
        return Cloud(filled, shade, len(chosen), support)

    def batch(self, observations: Mapping[str, Array]) -> dict[str, Array]:
        """Makes the clouds of B observations, whose arrays have a leading axis.

        Returns:
            `cloud/points` (B, P, 3) m, `cloud/colours`, `cloud/count` and `cloud/support` (B,).
        """
        rows = len(next(iter(observations.values())))
        clouds = [
            self({key: array[row] for key, array in observations.items()}) for row in range(rows)
        ]
        return {
            f"{PREFIX}points": np.stack([cloud.points for cloud in clouds]),
            f"{PREFIX}colours": np.stack([cloud.colours for cloud in clouds]),
            f"{PREFIX}count": np.array([cloud.count for cloud in clouds]),
            f"{PREFIX}support": np.array([cloud.support for cloud in clouds], np.float32),
        }

    def _back_projected(
        self, observation: Mapping[str, Array], camera: Camera
    ) -> tuple[Floats, NDArray[np.uint8]]:
        """Returns points (N, 3) in the base frame and colours of a camera's pixels with depth.

        Where neighbouring pixels are nearer to each other than 0.7 voxels, some are left out.
        """
        name = camera.name
        K = np.asarray(observation[f"intrinsics/{name}"], np.float64)
        T = np.asarray(observation[f"T_base_camera/{name}"], np.float32)
        counts = observation[f"depth/{name}"]
        sample = counts[::4, ::4]
        typical = (
            float(np.median(sample[sample > 0])) * camera.depth_unit_m if sample.any() else 1.0
        )
        spacing = max(typical / K[0, 0], 1e-6)
        stride = int(np.clip(0.7 * self.settings.voxel_m / spacing, 1, 8))
        first = stride // 2
        depth = counts[first::stride, first::stride].astype(np.float32)
        v, u = np.nonzero(depth > 0)
        z = depth[v, u] * np.float32(camera.depth_unit_m)
        y = (v * stride + first + 0.5 - K[1, 2]) / K[1, 1]
        x = (u * stride + first + 0.5 - K[0, 2] - K[0, 1] * y) / K[0, 0]
        rays = np.stack((x, y, np.ones_like(x)), axis=1).astype(np.float32)
        points = np.asarray((rays * z[:, None]) @ T[:3, :3].T + T[:3, 3], np.float32)
        colours = observation[f"rgb/{name}"][first::stride, first::stride][v, u]
        return points, colours

    def _averaged(
        self, points: Floats, colours: NDArray[np.uint8]
    ) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Returns the means of points and colours in each voxel, and the voxels' keys."""
        cell = ((points - self._low) / self.settings.voxel_m).astype(np.int64)
        size = ((self._high - self._low) / self.settings.voxel_m).astype(np.int64) + 2
        key = (cell[:, 0] * size[1] + cell[:, 1]) * size[2] + cell[:, 2]
        keys, inverse = np.unique(key, return_inverse=True)
        count = np.bincount(inverse)
        columns = (*points.T, *colours.T.astype(np.float32))
        means = [np.bincount(inverse, column) / count for column in columns]
        both = np.stack(means, axis=1).astype(np.float32)
        return both[:, :3], both[:, 3:], keys

    def _off_robot(self, points: Floats, observation: Mapping[str, Array]) -> NDArray[np.bool_]:
        """Returns which points (N, 3) are outside of the capsules of the robot's links."""
        if self.embodiment is None or not len(points):
            return np.ones(len(points), bool)
        axes = self.embodiment.capsule_axes(observation["joints/position"]).reshape(-1, 2, 3)
        start = axes[:, 0].astype(np.float32)
        along = (axes[:, 1] - axes[:, 0]).astype(np.float32)
        squared = np.maximum((along**2).sum(axis=1), 1e-9)
        onto = points @ along.T - (start * along).sum(axis=1)
        share = np.clip(onto / squared, 0.0, 1.0)
        distance = (
            (points**2).sum(axis=1)[:, None]
            - 2 * points @ start.T
            + (start**2).sum(axis=1)
            - share * (2 * onto - share * squared)
        )
        return np.asarray((distance > self._squared_reach).all(axis=1))

    def _chosen(
        self,
        points: Floats,
        keys: NDArray[np.int64],
        free: NDArray[np.bool_],
        above: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Returns the numbers of at most P points, few of them of the support."""
        del points
        settings = self.settings
        rank = np.argsort(_hashed(keys), kind="stable")
        over = rank[(free & above)[rank]]
        under = rank[(free & ~above)[rank]]
        under = under[
            : min(settings.support_points, max(settings.points - len(over), settings.points // 8))
        ]
        over = over[: settings.points - len(under)]
        return np.concatenate((over, under))


def _shape_of(embodiment: Embodiment) -> list[Any]:
    """Returns what is removed of a robot: its capsules with closed and with open grippers."""
    ends = np.stack((embodiment.home, embodiment.home))
    ends[:, list(embodiment.grippers.values())] = [[0.0], [1.0]]
    axes = embodiment.capsule_axes(ends).round(6)
    return [axes.tolist(), [mount.radius for mount in embodiment.capsule_mounts]]


def _support(heights: Floats) -> float:
    """Returns the height of the layer of 1 cm with the most points, m."""
    bins = np.floor(heights / (SUPPORT_BIN_M / 2)).astype(np.int64)
    lowest = bins.min()
    counts = np.bincount(bins - lowest)
    pairs = counts[:-1] + counts[1:] if len(counts) > 1 else counts
    first = (int(pairs.argmax()) + lowest) * SUPPORT_BIN_M / 2
    layer = heights[(heights >= first) & (heights < first + SUPPORT_BIN_M)]
    return float(layer.mean()) if len(layer) else float(heights.min())


def _hashed(keys: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Returns well mixed numbers of keys (Jenkins' and Mueller's integer hash)."""
    mixed = keys.astype(np.uint64)
    for _ in range(2):
        mixed = ((mixed >> np.uint64(16)) ^ mixed) * np.uint64(0x45D9F3B) & np.uint64(0xFFFFFFFF)
    return ((mixed >> np.uint64(16)) ^ mixed).astype(np.uint32)


def held_points(
    clouds: Array, poses: Floats, spans: Iterable[tuple[int, NDArray[np.int64], NDArray[np.int64]]]
) -> NDArray[np.uint8]:
    """Returns which points a gripper carries, (F, P): bit n for the n-th arm.

    Voxels in the frame of a gripper that are occupied in most frames while it carries are held;
    what stands still around a resting gripper is told from it by poses that differ.

    Args:
        clouds: (F,) records of `cloud_dtype`.
        poses: (F, N, 4, 4) measured `T_base_gripper` of each frame.
        spans: For each time an arm carries something: the arm, the frames in which it is away from
            the place where it closed, and all frames to mark.
    """
    held = np.zeros(clouds["points"].shape[:2], np.uint8)
    for arm, away, marked in spans:
        distinct: list[int] = []
        for frame in away.tolist():
            steps = poses[distinct, arm, :3, 3] - poses[frame, arm, :3, 3]
            if not len(steps) or np.linalg.norm(steps, axis=-1).min() > 0.01:
                distinct.append(frame)
        if len(distinct) < 3:
            continue
        occupied = np.zeros(_SIDE**3, np.int64)
        for frame in distinct:
            cells = _gripper_cells(clouds[frame], poses[frame, arm])
            high = _points(clouds[frame])[:, 2] > clouds[frame]["support"] + 0.012
            occupied[np.unique(cells[(cells >= 0) & high])] += 1
        often = (occupied >= max(2, 0.4 * len(distinct))).reshape(_SIDE, _SIDE, _SIDE)
        wide = often.copy()
        for axis in range(3):
            wide |= np.roll(often, 1, axis) | np.roll(often, -1, axis)
        for frame in marked.tolist():
            cells = _gripper_cells(clouds[frame], poses[frame, arm])
            inside = (cells >= 0) & wide.ravel()[cells.clip(0)]
            inside &= _points(clouds[frame])[:, 2] > clouds[frame]["support"] + 0.006
            held[frame, : len(cells)] |= inside.astype(np.uint8) << arm
    return held


_CELL_M = 0.014
_SIDE = 48


def _points(record: Array) -> Floats:
    return np.asarray(record["points"][: record["count"]] * np.float32(UNIT_M))


def _gripper_cells(record: Array, T_base_gripper: Floats) -> NDArray[np.int64]:
    """Returns the voxel of each point in the frame of a gripper, -1 for distant points."""
    local = (_points(record) - T_base_gripper[:3, 3]) @ T_base_gripper[:3, :3]
    cell = np.floor(local / _CELL_M).astype(np.int64) + _SIDE // 2
    near = ((cell >= 0) & (cell < _SIDE)).all(axis=1)
    return np.where(near, (cell[:, 0] * _SIDE + cell[:, 1]) * _SIDE + cell[:, 2], -1)


def cloud_dtype(points: int) -> np.dtype[np.void]:
    """Returns the type of a stored cloud with P places."""
    return np.dtype(
        [
            ("points", "<i2", (points, 3)),
            ("colours", "u1", (points, 3)),
            ("held", "u1", (points,)),
            ("count", "<i4"),
            ("support", "<f4"),
        ]
    )


def cache_folder() -> Path:
    """Returns the folder of the clouds of recordings, `$XDG_CACHE_HOME/stringline/clouds`."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "stringline" / "clouds"


class CloudCache:
    """The clouds of episodes at some steps, one memory-mapped file for each episode.

    The files are in `cache_folder`, so all trainings on the same recordings share them. A file is
    found by the content of the recording and by the settings, never by a name.
    """

    def __init__(self, maker: CloudMaker, folder: Path | None = None) -> None:
        """Uses a folder; if None, `cache_folder`."""
        self.maker = maker
        self.folder = (folder or cache_folder()) / maker.digest

    def records(
        self,
        episodes: Sequence[StoredEpisode],
        steps: Sequence[NDArray[np.int64]],
        spans: Sequence[Sequence[tuple[int, NDArray[np.int64], NDArray[np.int64]]]],
    ) -> list[Array]:
        """Returns the clouds of each episode at its steps, as records of `cloud_dtype`.

        Clouds that are not in the cache are made, with a progress bar.

        Args:
            episodes: The episodes.
            steps: Steps of each of them, rising.
            spans: What is held, see `held_points`; frames count the steps.
        """
        files = [
            self.folder / f"{self._key(*each)}.npy"
            for each in zip(episodes, steps, spans, strict=True)
        ]
        missing = [number for number, file in enumerate(files) if not file.is_file()]
        if missing:
            self.folder.mkdir(parents=True, exist_ok=True)
            frames = sum(len(steps[number]) for number in missing)
            with tqdm(total=frames, desc="point clouds", unit="frame", mininterval=0.5) as bar:
                for number in missing:
                    made = self._made(episodes[number], steps[number], spans[number])
                    _write(files[number], made)
                    bar.update(len(made))
            limit_size(self.folder.parent, CACHE_BYTES, keep=files)
        return [_read(file) for file in files]

    def _made(
        self,
        episode: StoredEpisode,
        steps: NDArray[np.int64],
        spans: Sequence[tuple[int, NDArray[np.int64], NDArray[np.int64]]],
    ) -> Array:
        records = np.zeros(len(steps), cloud_dtype(self.maker.settings.points))
        arrays = episode.arrays
        arms = episode.attributes.contract.arms
        for record, observation in zip(
            records, recorded_inputs(episode, self.maker.cameras, steps), strict=True
        ):
            cloud = self.maker(observation)
            record["points"] = np.round(cloud.points / UNIT_M)
            record["colours"] = cloud.colours
            record["count"] = cloud.count
            record["support"] = cloud.support
        if spans:
            poses = np.stack(
                [np.asarray(arrays[f"T_base_gripper/{arm}"])[steps] for arm in arms], 1
            )
            records["held"] = held_points(records, poses.astype(np.float32), spans)
        return records

    def _key(self, episode: StoredEpisode, steps: Array, spans: Sequence[Any]) -> str:
        """Returns the identifier of an episode's clouds: of the content of all that they show."""
        images = ("rgb/", "depth/", "intrinsics/", "T_base_camera/", "joints/position", "frame/")
        # What is held depends on the grippers.
        read = (*images, "T_base_gripper/") if len(spans) else images
        content = sorted(
            f"{key} {entry.crc32} {entry.shape}"
            for key, entry in episode.entries.items()
            if key.startswith(read)
        )
        digest = hashlib.sha256(" ".join(content).encode())
        digest.update(np.asarray(steps, np.int64).tobytes())
        for arm, away, marked in spans:
            digest.update(f"{arm} {away.tolist()} {marked.tolist()}".encode())
        return digest.hexdigest()[:32]


def recorded_inputs(
    episode: StoredEpisode, cameras: Sequence[Camera], steps: NDArray[np.int64]
) -> Iterator[dict[str, Array]]:
    """Yields what a `CloudMaker` reads, at some steps of an episode."""
    arrays = episode.arrays
    names = [camera.name for camera in cameras if f"depth/{camera.name}" in arrays]
    images = {f"{kind}/{name}" for kind in ("rgb", "depth") for name in names}
    geometry = {f"{kind}/{name}" for kind in ("intrinsics", "T_base_camera") for name in names}
    read = {key: arrays[key] for key in images | geometry}
    fixed = {key for key in geometry if read[key].ndim == 2}  # One matrix for the whole episode.
    frames = {name: arrays[f"frame/{name}"] for name in names}
    state = {"joints/position"} & set(arrays)
    for step in steps.tolist():
        found: dict[str, Array] = {key: arrays[key][step] for key in state}
        for key, array in read.items():
            frame = int(frames[key.partition("/")[2]][step])
            found[key] = array if key in fixed else array[frame]
        yield found


def _write(file: Path, records: Array) -> None:
    """Writes records as one file of NumPy, complete or not at all."""
    text = io.BytesIO()
    np.save(text, records)
    write_file(file, text.getvalue())


def _read(file: Path) -> Array:
    """Maps the records of a file, and marks it as used.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        records: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"The point clouds {file} cannot be read: {error}. Remove this file; they are made "
            "again."
        ) from error
    os.utime(file)
    return records


def limit_size(folder: Path, most_bytes: int, keep: Iterable[Path] = ()) -> None:
    """Removes the clouds that were used longest ago, down to a total size; some are kept."""
    kept = set(keep)
    files = [(file.stat(), file) for file in folder.rglob("*.npy")]
    total = sum(stat.st_size for stat, _ in files)
    for stat, file in sorted(files, key=lambda entry: entry[0].st_mtime):
        if total <= most_bytes:
            return
        if file not in kept:
            file.unlink(missing_ok=True)
            total -= stat.st_size


def cloud_maker(
    episodes: Sequence[StoredEpisode], cameras: Sequence[str] | None, settings: CloudSettings
) -> CloudMaker:
    """Returns the maker of the clouds of a training.

    Args:
        episodes: The training episodes, whose grippers the workspace surrounds.
        cameras: Names of the cameras; if None, all.
        settings: How clouds are made.

    Raises:
        ValueError: A camera does not exist, or lacks depth or calibration, or there are no arms.
    """
    contract = episodes[0].attributes.contract
    if not contract.arms:
        raise ValueError(
            "Point clouds need gripper poses, which bound the workspace; the contract has no arms. "
            "Import the recordings with layout.embodiment=FILE.urdf or NAME."
        )
    chosen = contract.cameras if cameras is None else [contract.camera(name) for name in cameras]
    workspace = Workspace.around(gripper_statistics(episodes), settings)
    return CloudMaker(chosen, workspace, removable_embodiment(contract), settings)


def removable_embodiment(contract: Contract) -> Embodiment | None:
    """Returns the embodiment whose links can be removed from clouds; None if it is unknown."""
    embodiment = embodiment_of(contract)
    if embodiment is None or len(contract.joints) != len(embodiment.joints):
        return None
    return embodiment
