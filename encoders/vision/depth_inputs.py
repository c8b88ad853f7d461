"""Depth as an input of the network, besides the positions of tokens.

The variants in figure 5 of STRING (Schenck et al., 2025, arXiv 2502.02562), and the fourth channel
of its section 4.4.3, are combinations of two objects:

    no depth                        ColourOnly()      GridPlaces
    a fourth channel                DepthChannel()    GridPlaces
    surface normals                 SurfaceNormals()  GridPlaces
    lifting by STRING               ColourOnly()      PatchDepthPlaces, or MetricPlaces
    normals and lifting             SurfaceNormals()  PatchDepthPlaces, or MetricPlaces

`NormalsOnly` is ours.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, Range
from stringline.encoders.coordinates.geometry import View, returned, surface_normals


class DepthInput(nn.Module, ABC):
    """Makes the images that enter the patch embedding.

    Attributes:
        channels: Channels of each image.
        streams: Images per camera. All enter the same embedding and give tokens of their own at the
            same positions, which `StreamFusion` joins after the transformer.
        reads: Kinds of keys of the contract that are needed besides `rgb`.
    """

    channels: int = 3
    streams: int = 1
    reads: frozenset[str] = frozenset()

    @abstractmethod
    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns `streams` images (B, H, W, channels) of colours (B, H, W, 3), -2 ... 2.

        The one with the colours, if there is one, is the first.
        """


class ColourOnly(DepthInput):
    """Colours alone; depth may still determine positions."""

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns the colours; see `DepthInput.forward`."""
        return (colours,)


class DepthChannel(DepthInput):
    """Depth in metres as a fourth channel, 0 for pixels without depth."""

    channels = 4
    reads = frozenset({"depth"})

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns colours with depth; see `DepthInput.forward`."""
        if view.depth is None:
            return (nn.functional.pad(colours, (0, 1)),)
        metres = (returned(view.depth) * view.depth_unit_m).to(colours.dtype)
        return (torch.cat((colours, metres.unsqueeze(-1)), dim=-1),)


class SurfaceNormals(DepthInput):
    """Surface normals as a second image beside the colours (STRING, section 4.4.2).

    Both pass through one embedding and one transformer, and are fused afterwards. Components are
    scaled to the range of the colours, -2 ... 2; pixels without a normal, and cameras without depth
    or geometry, are 0.
    """

    streams = 2

    def __init__(
        self, *, base_frame: bool = True, radius_px: int = 1, steepest_deg: float = 80.0
    ) -> None:
        """Sets the parameters of the normals.

        Other Args:
            base_frame: Normals in the base frame of the robot, in which a table looks the same to
                every camera. False: in the camera frame, which rotations of the whole scene about
                an axis of the base do not change.
            radius_px: See `surface_normals`.
            steepest_deg: See `surface_normals`.

        Raises:
            ValueError: An argument is out of range.
        """
        super().__init__()
        if radius_px not in COUNT or steepest_deg not in Range(above=0, below=90):
            raise ValueError(
                f"radius_px is {radius_px} and steepest_deg is {steepest_deg}; allowed: from 1, "
                f"and "
                f"between 0 and 90."
            )
        self.base_frame = base_frame
        self.radius_px = radius_px
        self.steepest_deg = steepest_deg
        self.reads = frozenset(
            {"depth", "intrinsics"} | ({"T_base_camera"} if base_frame else set())
        )

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns colours and normals; see `DepthInput.forward`."""
        normals = self._normals(view)
        return colours, (
            torch.zeros_like(colours) if normals is None else normals.to(colours.dtype)
        )

    def _normals(self, view: View) -> Tensor | None:
        """Returns normals (B, H, W, 3), -2 ... 2; None without depth or geometry."""
        if (
            view.depth is None
            or view.intrinsics is None
            or (self.base_frame and view.T_base_camera is None)
        ):
            return None
        normals = surface_normals(
            view.depth,
            view.depth_unit_m,
            view.intrinsics,
            view.T_base_camera if self.base_frame else None,
            radius_px=self.radius_px,
            steepest_deg=self.steepest_deg,
        )
        return 2 * normals


class NormalsOnly(SurfaceNormals):
    """Surface normals in place of the colours: colours and light have no effect on the network.

    It cannot tell objects of one shape apart. Components are scaled as those of `SurfaceNormals`.
    """

    streams = 1

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns the normals; see `DepthInput.forward`.

        Raises:
            ValueError: The camera has no depth or geometry.
        """
        normals = self._normals(view)
        if normals is None:
            raise ValueError(
                f"Camera {view.name or 'without a name'} has no depth or no geometry, and "
                "NormalsOnly reads nothing else; allowed: depth=normals, channel or colours."
            )
        return (normals.to(colours.dtype),)


class StreamFusion(nn.Module):
    """Joins the tokens of several streams at a position by a linear map."""

    def __init__(self, dim: int, streams: int) -> None:
        """Builds the map of `streams` tokens per position, of `dim` channels before and after."""
        super().__init__()
        self.streams = streams
        self.fuse: nn.Module = nn.Linear(streams * dim, dim) if streams > 1 else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        """Returns tokens (B, N, dim) of tokens (B, streams N, dim), stream after stream."""
        if self.streams == 1:
            return features
        batch, tokens, dim = features.shape
        stacked = features.reshape(batch, self.streams, tokens // self.streams, dim)
        fused: Tensor = self.fuse(stacked.transpose(1, 2).flatten(2))
        return fused
