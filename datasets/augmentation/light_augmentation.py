"""Augmentation of colour and lighting by an affine map of colours per example."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stringline.datasets.augmentation.augment import CameraBatch, Transform, check_range, uniform

GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in JPEG and most implementations of colour jitter.
_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


class LightAugmentation(Transform):
    """Changes brightness, contrast, saturation, hue, camera gains, and the direction of light.

    All except the direction of light are one affine map of sRGB values. Hue rotates the colour
    plane of YIQ. All cameras of an example share the changes, as they share the light in a room,
    except the gains.
    """

    def __init__(
        self,
        *,
        brightness: Sequence[float] = (0.8, 1.2),
        contrast: Sequence[float] = (0.8, 1.2),
        saturation: Sequence[float] = (0.7, 1.3),
        hue_deg: Sequence[float] = (-10.0, 10.0),
        gain: Sequence[float] = (0.95, 1.05),
        falloff: Sequence[float] = (0.0, 0.2),
    ) -> None:
        """Sets the ranges.

        Args:
            brightness: Factor of all values, 0 to 4.
            contrast: Factor of the distance from the mean grey of the image, 0 to 4.
            saturation: Factor of the distance from grey, 0 to 4.
            hue_deg: Rotation of the hue, -180 to 180 degrees.
            gain: Factor of each colour channel of each camera (exposure and white balance), 0 to 4.
            falloff: Relative brightness of one side of the image above its middle, 0 to 1, in a
                random direction.
        """
        super().__init__()
        self.brightness = check_range("brightness", brightness, 0, 4)
        self.contrast = check_range("contrast", contrast, 0, 4)
        self.saturation = check_range("saturation", saturation, 0, 4)
        self.hue_deg = check_range("hue_deg", hue_deg, -180, 180)
        self.gain = check_range("gain", gain, 0, 4)
        self.falloff = check_range("falloff", falloff, 0, 1)

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes colours and light; see `Transform`."""
        if not views:
            return {}
        batch = len(next(iter(views.values())).rgb)
        colour = self._colour(batch, generator)
        contrast = uniform(self.contrast, batch, generator)
        angle = uniform((0, 2 * torch.pi), batch, generator)
        strength = uniform(self.falloff, batch, generator)
        slope = (
            strength[:, None] * torch.stack((angle.cos(), angle.sin()), dim=-1)
            if self.falloff[1]
            else None
        )
        changed = {}
        for name, view in views.items():
            gain = uniform(self.gain, 3 * batch, generator).reshape(batch, 3)
            changed[name] = replace(
                view, rgb=relight(view.rgb, gain[:, :, None] * colour, contrast, slope)
            )
        return changed

    def _colour(self, batch: int, generator: torch.Generator) -> Tensor:
        """Returns (B, 3, 3): brightness, saturation and hue as one matrix of colours."""
        brightness = uniform(self.brightness, batch, generator)
        saturation = uniform(self.saturation, batch, generator)
        turn = torch.deg2rad(uniform(self.hue_deg, batch, generator))
        inner = torch.zeros(batch, 3, 3, device=generator.device)
        inner[:, 0, 0] = 1
        inner[:, 1, 1] = inner[:, 2, 2] = saturation * turn.cos()
        inner[:, 2, 1] = saturation * turn.sin()
        inner[:, 1, 2] = -inner[:, 2, 1]
        yiq = torch.tensor(_YIQ).to(generator.device, non_blocking=True)
        matrix: Tensor = torch.linalg.inv(yiq) @ inner @ yiq
        return brightness[:, None, None] * matrix


def relight(
    images: Tensor, colour: Tensor, contrast: Tensor, slope: Tensor | None = None
) -> Tensor:
    """Applies a colour matrix, then contrast about the mean grey, then a gradient of light.

    Args:
        images: (B, H, W, 3) uint8.
        colour: (B, 3, 3) matrices of sRGB values.
        contrast: (B,).
        slope: (B, 2), relative increase of the light from the middle to the right and to the lower
            edge; None for uniform light.

    Returns:
        (B, H, W, 3), clipped to 0 and 255 and rounded.
    """
    batch, height, width = images.shape[:3]
    mean = images.flatten(1, 2).float().mean(dim=1)
    grey = (colour @ mean.unsqueeze(-1)).squeeze(-1) @ mean.new_tensor(GREY)
    matrix = contrast[:, None, None] * colour
    offset = ((1 - contrast) * grey)[:, None, None]
    changed = torch.baddbmm(offset, images.flatten(1, 2).float(), matrix.mT).reshape(images.shape)
    if slope is not None:
        across, down = (
            2 * (torch.arange(size, device=slope.device) + 0.5) / size - 1
            for size in (width, height)
        )
        light = 1 + slope[:, 0, None, None] * across + slope[:, 1, None, None] * down[:, None]
        changed *= light.reshape(batch, height, width, 1)
    return changed.round_().clamp_(0, 255).to(images.dtype)
