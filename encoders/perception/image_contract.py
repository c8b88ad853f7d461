"""The contract between labelled images and a network of perception."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

from stringline.datasets.cameras.image_size import Fit
from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.contract.contract import Camera

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
