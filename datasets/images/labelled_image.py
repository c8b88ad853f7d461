"""The contract of one labelled image, and of one labelled clip.

Camera frame: x right, y down, z forward, metres. The upper left pixel covers (0, 0) to (1, 1), so
its centre lies at (0.5, 0.5). Depth is along the z axis.
"""

from dataclasses import dataclass

import numpy as np

from stringline.datasets.images.boxes import Box3d


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledObject:
    """One object of an image.

    Attributes:
        name: Its name, such as "folding chair".
        box2d: (4,) x0, y0, x1, y1 in pixels; a box of the one pixel in column 3 and row 5 is
            3, 5, 4, 6. None where unknown.
        box3d: The box of the whole object in the camera frame; None where unknown.
        visibility: Share of its pixels that other objects do not hide, 0 to 1; None where unknown.
        truncation: Share of the object outside of the image, 0 to 1; None where unknown.
        asset: Identity of its form or mesh, for splits by asset; "" where unknown.
    """

    name: str
    box2d: np.ndarray | None = None
    box3d: Box3d | None = None
    visibility: float | None = None
    truncation: float | None = None
    asset: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledImage:
    """One image with all that is known of it.

    Attributes:
        rgb: (H, W, 3) uint8.
        depth: (H, W) uint16 in millimetres, 0 where unknown; None without depth.
        clean_depth: (H, W) uint16, the depth before the sensor's noise; None where unknown.
        intrinsics: (3, 3) in pixels; None where unknown.
        T_world_camera: (4, 4) camera to world, where world z is up; None where unknown.
        segments: (H, W) uint16; i + 1 where object i is seen, 0 elsewhere; None where unknown.
        label: Its class; None where unknown.
        captions: Texts that hold for the image.
        objects: The objects, in the order of `segments`.
        room: Identity of the room or scene; images of one room lie on one side of a split.
        source: Identity of the origin, such as the style of a drawing or the video of a clip.
    """

    rgb: np.ndarray
    depth: np.ndarray | None = None
    clean_depth: np.ndarray | None = None
    intrinsics: np.ndarray | None = None
    T_world_camera: np.ndarray | None = None
    segments: np.ndarray | None = None
    label: str | None = None
    captions: tuple[str, ...] = ()
    objects: tuple[LabelledObject, ...] = ()
    room: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledClip:
    """One clip with its class.

    Attributes:
        rgb: (F, H, W, 3) uint8.
        depth: (F, H, W) uint16 in millimetres, 0 where unknown; None without depth.
        intrinsics: (3, 3) in pixels, equal for all frames; None where unknown.
        T_world_camera: (F, 4, 4) camera to world; None where unknown.
        label: Its class, such as "lift"; None where unknown.
        reverse_label: The class of the clip played backwards, such as "put down"; None where
            no class describes it.
        room: Identity of the room or scene.
        source: Identity of the origin; clips of one video have one source.
    """

    rgb: np.ndarray
    depth: np.ndarray | None = None
    intrinsics: np.ndarray | None = None
    T_world_camera: np.ndarray | None = None
    label: str | None = None
    reverse_label: str | None = None
    room: str = ""
    source: str = ""


Item = LabelledImage | LabelledClip
