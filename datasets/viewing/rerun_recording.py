"""Rerun recordings of episodes: images, depth, fused cloud, cameras, grippers, state and actions.

    world/cloud                         the fused cloud, base frame, a few times per second
    world/cameras/<camera>              frustum: pose and intrinsics; below it /rgb
    world/grippers/<arm>                pose, drawn as three axes
    world/robot                         capsules of the links at the measured joints
    depth/<camera>                      depth images
    world/keyposes, keyposes            where the grippers act, see `keypose_views.py`
    action/<dimension>, joints/position/<joint>     plots
    instruction                         the instruction in words

The time lines are `time`, seconds from the first step, and `step`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.pointclouds.clouds import cloud_cameras, fused_cloud, missing_for_cloud
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.viewing.keypose_views import KeyposeEntities
from stringline.datasets.viewing.viewer_process import LOOPBACK, open_viewer

APPLICATION = "stringline"
AXES_M = 0.06
FRUSTUM_M = 0.08
POINT_RADIUS_M = 0.0015
ROBOT_COLOUR = (150, 150, 160)


@dataclass(frozen=True)
class Recorder:
    """Writes one episode into a recording.

    Attributes:
        cameras: Names of the cameras; None takes all.
        cloud_hz: Clouds per second.
        cloud_points: Largest number of points of a cloud, which is thinned out evenly.
        jpeg_quality: 1 to 100; None for uncompressed images of ten times the size.
        events: How keyposes are found; if None, they are not shown.
    """

    episode: StoredEpisode
    cameras: Sequence[str] | None = None
    cloud_hz: float = 4.0
    cloud_points: int = 60_000
    jpeg_quality: int | None = 90
    events: KeyposeSettings | None = None
    rerun: ModuleType = field(
        default_factory=lambda: optional_library("rerun", package="rerun-sdk", extra="view")
    )

    def __post_init__(self) -> None:
        """Checks the numbers and the names of the cameras."""
        if not self.cloud_hz > 0 or self.cloud_points < 1:
            raise ValueError(
                f"Got cloud_hz={self.cloud_hz}, cloud_points={self.cloud_points}; allowed: "
                "positive numbers."
            )
        if self.jpeg_quality is not None and not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"jpeg_quality is {self.jpeg_quality}; allowed: 1 to 100, or null.")
        _ = self.chosen

    @property
    def chosen(self) -> list[Camera]:
        """The chosen cameras."""
        contract = self.episode.attributes.contract
        return (
            list(contract.cameras)
            if self.cameras is None
            else [contract.camera(name) for name in self.cameras]
        )

    def stream(self) -> Any:
        """Returns a new, empty recording without a destination."""
        return self.rerun.RecordingStream(APPLICATION, recording_id=self.episode.name)

    def save(self, path: Path) -> None:
        """Writes the recording to a `.rrd` file for `rerun FILE`."""
        if path.suffix != ".rrd":
            raise ValueError(f"A recording is written as a .rrd file; got {path}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = self.stream()
        stream.save(str(path), default_blueprint=self.blueprint())
        self.log(stream)
        stream.flush()
        stream.disconnect()

    def show(self, host: str = LOOPBACK, port: int = 0) -> None:
        """Opens the viewer, see `open_viewer`, and sends the recording to it."""
        stream = self.stream()
        address = open_viewer(host, port).address
        stream.connect_grpc(address, default_blueprint=self.blueprint())
        self.log(stream)
        stream.flush()

    def log(self, stream: Any) -> None:
        """Logs all data to a recording."""
        rerun = self.rerun
        arrays = self.episode.arrays
        contract = self.episode.attributes.contract
        stream.log("world", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        stream.log(
            "instruction",
            rerun.TextDocument(self.episode.attributes.instruction or "none"),
            static=True,
        )
        for camera in self.chosen:
            self._camera(stream, camera)
        for arm in contract.arms:
            self._poses(
                stream, f"world/grippers/{arm}", arrays[f"T_base_gripper/{arm}"], self._steps()
            )
            stream.log(f"world/grippers/{arm}", rerun.TransformAxes3D(AXES_M), static=True)
        self._robot(stream)
        self._plots(stream, "action", [dimension.name for dimension in contract.action])
        if "joints/position" in arrays:
            self._plots(stream, "joints/position", contract.joints)
        if self.keyposes is not None:
            self.keyposes.log(rerun, stream)
        self._clouds(stream)

    @cached_property
    def keyposes(self) -> KeyposeEntities | None:
        """The keyposes of the episode; if None, they are not shown."""
        return None if self.events is None else KeyposeEntities.of(self.episode, self.events)

    def blueprint(self) -> Any:
        """Returns the layout of the viewer: the world left, images and plots right."""
        rrb = self.rerun.blueprint
        images = [
            rrb.Spatial2DView(origin=f"world/cameras/{camera.name}", name=camera.name)
            for camera in self.chosen
        ]
        depth = [
            rrb.Spatial2DView(origin=f"depth/{camera.name}", name=f"{camera.name}, depth")
            for camera in self.chosen
            if camera.depth
        ]
        # With many dimensions a legend hides the plot; rerun names the line under the mouse.
        legend = rrb.PlotLegend(visible=False)
        plots = [
            rrb.TimeSeriesView(origin=key, name=key, plot_legend=legend)
            for key in ("action", "joints")
        ]
        right = [rrb.Grid(*images, *depth, grid_columns=4), rrb.Horizontal(*plots)]
        if self.keyposes is not None:
            right.append(rrb.TextLogView(origin="keyposes", name="keyposes"))
        world = rrb.Spatial3DView(origin="world", name="world, base frame")
        return rrb.Blueprint(
            rrb.Horizontal(world, rrb.Vertical(*right), column_shares=[3, 2]), collapse_panels=True
        )

    def _steps(self) -> list[Any]:
        time = self.episode.arrays["time"]
        step = np.arange(len(time))
        return [
            self.rerun.TimeColumn("time", duration=time - time[0]),
            self.rerun.TimeColumn("step", sequence=step),
        ]

    def _frames(self, camera: str) -> Iterator[tuple[int, dict[str, float | int]]]:
        """Yields each frame that a step refers to, with the first such step and its time."""
        arrays = self.episode.arrays
        frames, steps = np.unique(arrays[f"frame/{camera}"], return_index=True)
        for frame, step in zip(frames.tolist(), steps.tolist(), strict=True):
            yield frame, {"step": step, "time": float(arrays["time"][step] - arrays["time"][0])}

    def _camera(self, stream: Any, camera: Camera) -> None:
        rerun = self.rerun
        arrays = self.episode.arrays
        path = f"world/cameras/{camera.name}"
        poses = self._frustum(stream, camera, path) if camera.has_geometry else None
        for frame, at in self._frames(camera.name):
            self._set(stream, at)
            if poses is not None and poses.ndim == 3:
                stream.log(
                    path,
                    rerun.Transform3D(translation=poses[frame, :3, 3], mat3x3=poses[frame, :3, :3]),
                )
            image = rerun.Image(arrays[f"rgb/{camera.name}"][frame])
            stream.log(
                f"{path}/rgb",
                image if self.jpeg_quality is None else image.compress(self.jpeg_quality),
            )
            if camera.depth is not None:
                depth = arrays[f"depth/{camera.name}"][frame]
                stream.log(
                    f"depth/{camera.name}", rerun.DepthImage(depth, meter=1 / camera.depth_unit_m)
                )
        stream.reset_time()

    def _frustum(self, stream: Any, camera: Camera, path: str) -> Array:
        """Logs the constant geometry of a camera and returns its poses."""
        pinhole = self.rerun.Pinhole(
            image_from_camera=self.episode.arrays[f"intrinsics/{camera.name}"],
            resolution=[camera.width, camera.height],
            camera_xyz=self.rerun.ViewCoordinates.RDF,
            image_plane_distance=FRUSTUM_M,
        )
        stream.log(path, pinhole, static=True)
        poses = self.episode.arrays[f"T_base_camera/{camera.name}"]
        if poses.ndim == 2:
            stream.log(
                path,
                self.rerun.Transform3D(translation=poses[:3, 3], mat3x3=poses[:3, :3]),
                static=True,
            )
        return poses

    def _clouds(self, stream: Any) -> None:
        """Logs the fused cloud of the cameras with depth and geometry."""
        names = [camera.name for camera in self.chosen if missing_for_cloud(camera) is None]
        if not names:
            return
        names = cloud_cameras(self.episode.attributes.contract, names)
        time = self.episode.arrays["time"] - self.episode.arrays["time"][0]
        for step in np.unique(
            np.searchsorted(time, np.arange(0, time[-1] + 1e-9, 1 / self.cloud_hz) - 1e-9)
        ).tolist():
            cloud = fused_cloud(self.episode, step, names)
            every = -(-len(cloud) // self.cloud_points) or 1
            self._set(stream, {"step": step, "time": float(time[step])})
            points = self.rerun.Points3D(
                cloud.points[::every], colors=cloud.colours[::every], radii=POINT_RADIUS_M
            )
            stream.log("world/cloud", points)
        stream.reset_time()

    def _poses(self, stream: Any, path: str, T: NDArray[np.float32], times: list[Any]) -> None:
        columns = self.rerun.Transform3D.columns(
            translation=T[:, :3, 3], mat3x3=T[:, :3, :3].reshape(-1, 9)
        )
        stream.send_columns(path, indexes=times, columns=columns)

    def _robot(self, stream: Any) -> None:
        """Logs the capsules around the links as wires, if the kinematics are known."""
        robot = embodiment_of(self.episode.attributes.contract)
        q = self.episode.arrays.get("joints/position")
        if robot is None or q is None or not robot.capsule_mounts:
            return
        axes = robot.capsule_axes(np.asarray(q)).reshape(len(q), -1, 2, 3)
        along = axes[:, :, 1] - axes[:, :, 0]
        lengths = np.linalg.norm(along, axis=-1)
        radii = [mount.radius for mount in robot.capsule_mounts] * len(robot.arms)
        columns = self.rerun.Capsules3D.columns(
            lengths=lengths.ravel(),
            radii=np.tile(radii, len(q)),
            translations=axes[:, :, 0].reshape(-1, 3),
            quaternions=_turns_of_z(along, lengths).reshape(-1, 4),
        ).partition([lengths.shape[1]] * len(q))
        wires = self.rerun.Capsules3D.from_fields(
            colors=[ROBOT_COLOUR], fill_mode=self.rerun.components.FillMode.MajorWireframe
        )
        stream.log("world/robot", wires, static=True)
        stream.send_columns("world/robot", indexes=self._steps(), columns=columns)

    def _plots(self, stream: Any, key: str, names: Sequence[str]) -> None:
        for column, name in enumerate(names):
            values = self.rerun.Scalars.columns(scalars=self.episode.arrays[key][:, column])
            stream.send_columns(f"{key}/{name}", indexes=self._steps(), columns=values)

    @staticmethod
    def _set(stream: Any, at: dict[str, float | int]) -> None:
        stream.set_time("step", sequence=at["step"])
        stream.set_time("time", duration=at["time"])


def _turns_of_z(along: Array, lengths: Array) -> Array:
    """Returns quaternions (..., 4), xyzw, that turn the z axis into directions (..., 3)."""
    x, y, z = np.moveaxis(along / np.maximum(lengths, 1e-12)[..., None], -1, 0)
    opposite = 1.0 + z < 1e-9
    turns = np.stack([np.where(opposite, 1.0, -y), x, np.zeros_like(x), 1.0 + z], axis=-1)
    return np.asarray(turns / np.linalg.norm(turns, axis=-1, keepdims=True))
