"""The contract between labelled images and a network of perception.

Images and clips become arrays in the size and frame of the contract.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from stringline.datasets.cameras.resampling import Fit, ImageSize
from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.images.labelled_image import Box3d, LabelledClip, LabelledImage

CAMERA = "image"
"""Name of the camera whose keys, such as `rgb/image`, hold labelled images."""

Frame = Literal["camera", "level"]


@dataclass(frozen=True, kw_only=True)
class ImageContract:
    """What a network of perception reads, stored with its weights.

    Attributes:
        height: Rows of the images.
        width: Columns of the images.
        fit: How images of another size become images of this one, see `ImageSize`.
        depth: Whether the images have depth.
        geometry: Whether their intrinsics are known.
        frame: The frame of places and boxes: `camera`; or `level`, with the origin of the camera,
            z up and x horizontal, to the right of the camera.
        frames: Images of a clip; 1: single images.
        names: The classes, or the names of objects.
        tokeniser: The tokeniser of texts, see `BytePairs`; "": there are no texts.
    """

    height: int
    width: int
    fit: Fit = "pad"
    depth: bool = False
    geometry: bool = False
    frame: Frame = "camera"
    frames: int = 1
    names: tuple[str, ...] = ()
    tokeniser: str = ""

    def __post_init__(self) -> None:
        COUNT.check(frames=self.frames)
        for name, allowed in (("frame", Frame), ("fit", Fit)):
            if getattr(self, name) not in get_args(allowed):
                raise unknown_name(name, getattr(self, name), get_args(allowed))

    @property
    def camera(self) -> Camera:
        """The camera of the images."""
        return Camera(
            CAMERA,
            self.height,
            self.width,
            "measured" if self.depth else None,
            has_geometry=self.geometry,
        )

    def resized(self, height: int, width: int) -> Self:
        """Returns the contract of images of another size."""
        return replace(self, height=height, width=width)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""
        return asdict(self) | {"names": list(self.names)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Reads plain data."""
        return cls(**{**plain, "names": tuple(plain["names"])})


Labelled = LabelledImage | LabelledClip

# Shorter horizontal parts of an axis have no reliable direction.
_SHORTEST = 1e-3


@dataclass(frozen=True)
class ImageArrays:
    """Conversion of labelled images into the arrays of a contract."""

    contract: ImageContract

    def observation(self, labelled: Labelled) -> dict[str, Array]:
        """Returns the keys of the camera `image`: rgb, and depth and geometry of the contract.

        Images are (H, W, 3) and depth (H, W); those of clips have the frames in front.
        `T_base_camera` takes the camera to the frame of the contract.

        Raises:
            ValueError: Depth, intrinsics or pose are missing, images would have to be enlarged, or
                a clip has another number of frames.
        """
        self.check(labelled)
        contract = self.contract
        is_clip = isinstance(labelled, LabelledClip)
        rgb = labelled.rgb if is_clip else labelled.rgb[None]
        size = self.size(rgb.shape[1:3])
        found: dict[str, Array] = {"rgb": np.stack([size.colour(frame) for frame in rgb])}
        if contract.depth:
            depth = _required(labelled.depth, "depth")
            found["depth"] = np.stack([size.depth(one) for one in depth.reshape(rgb.shape[:3])])
        if contract.geometry:
            camera = _camera(rgb.shape[1:3])
            intrinsics = size.intrinsics(_required(labelled.intrinsics, "intrinsics"), camera)
            found["intrinsics"] = np.repeat(intrinsics[None], len(rgb), axis=0)
            found["T_base_camera"] = self._poses(labelled, len(rgb)).astype(np.float32)
        return {f"{kind}/{CAMERA}": x if is_clip else x[0] for kind, x in found.items()}

    def check(self, labelled: Labelled) -> None:
        """Checks that an image has what the contract requires; its pixels are not read.

        Raises:
            ValueError: As `observation`.
        """
        *clip, rows, columns, _ = labelled.rgb.shape
        frames = clip[0] if clip else 1
        if frames != self.contract.frames:
            raise ValueError(
                f"A clip has {frames} frames; allowed: {self.contract.frames}, as the first one."
            )
        self.size((rows, columns))
        if self.contract.depth:
            _required(labelled.depth, "depth")
        if self.contract.geometry:
            _required(labelled.intrinsics, "intrinsics")
            if self.contract.frame != "camera":
                _required(labelled.T_world_camera, "T_world_camera")

    def size(self, shape: tuple[int, ...]) -> ImageSize:
        """Returns the conversion of images of a shape (rows, columns).

        Raises:
            ValueError: They would have to be enlarged.
        """
        size = ImageSize(self.contract.height, self.contract.width, self.contract.fit)
        size.camera(_camera(shape))
        return size

    def pixels(self, shape: tuple[int, ...]) -> Array:
        """Returns the map (3, 3) from pixels of a shape to those of the contract."""
        return self.size(shape).intrinsics(np.eye(3), _camera(shape))

    def box(self, box: Box3d, labelled: LabelledImage) -> Box3d:
        """Returns a box in the frame of the contract, given one in the camera frame."""
        return box.transformed(self.pose(labelled))

    def pose(self, labelled: LabelledImage) -> Array:
        """Returns the transform (4, 4) from the camera to the frame of the contract, float64."""
        found: Array = self._poses(labelled, 1)[0]
        return found

    def _poses(self, labelled: Labelled, frames: int) -> Array:
        """Returns the transforms (frames, 4, 4) from the camera to the frame of the contract.

        Those of a clip go to the frame of its first camera.
        """
        pose = labelled.T_world_camera
        if self.contract.frame == "camera" and (pose is None or frames == 1):
            return np.repeat(np.eye(4)[None], frames, axis=0)
        poses = np.asarray(_required(pose, "T_world_camera"), np.float64).reshape(frames, 4, 4)
        from_world = np.linalg.inv(poses[0])
        if self.contract.frame == "level":
            from_world = level_pose(poses[0]) @ from_world
        moved: Array = from_world @ poses
        return moved


def level_pose(T_world_camera: Array) -> Array:
    """Returns the transform (4, 4) from a camera to its level frame.

    The level frame has the origin of the camera, z up, and x along the horizontal part of the
    camera's x axis; of its z axis if x is vertical.
    """
    up = T_world_camera[2, :3]
    axes = np.eye(3)
    across = next(
        flat
        for axis in (axes[0], axes[2])
        if np.linalg.norm(flat := axis - (axis @ up) * up) > _SHORTEST
    )
    x = across / np.linalg.norm(across)
    pose = np.eye(4)
    pose[:3, :3] = np.stack((x, np.cross(up, x), up))
    return pose


def _camera(shape: tuple[int, ...]) -> Camera:
    return Camera(CAMERA, int(shape[0]), int(shape[1]))


def _required(value: Array | None, name: str) -> Array:
    if value is None:
        raise ValueError(
            f"An image lacks {name}, which others of its store have; allowed: all images or none."
        )
    return value
