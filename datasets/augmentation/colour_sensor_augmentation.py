"""A colour camera model: blur of the lens, noise of the sensor, and gamma of its tone curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from stringline.datasets.augmentation.augment import CameraBatch, Transform, check_range, uniform

_REACH = 2  # Pixels on each side of the middle of the blur, two of its largest deviations.


class ColourSensor(Transform):
    """Simulates a colour camera: blurs images, adds noise, and changes their gamma, in this order.

    All three are drawn for each example and camera. Noise is independent for each pixel and
    channel. Pixels keep their places, so depth and intrinsics stay right.
    """

    def __init__(
        self,
        *,
        blur_px: Sequence[float] = (0.0, 0.8),
        noise: Sequence[float] = (0.0, 0.03),
        gamma: Sequence[float] = (0.75, 1.35),
    ) -> None:
        """Sets the ranges.

        Args:
            blur_px: Standard deviation of a Gaussian blur in pixels, 0 to 1.
            noise: Standard deviation of the noise as a share of the largest value, 0 to 0.5.
            gamma: Exponent of values between 0 and 1, 0.2 to 5, uniform in its logarithm.

        Raises:
            ValueError: A setting is out of range.
        """
        super().__init__()
        self.blur_px = check_range("blur_px", blur_px, 0, 1)
        self.noise = check_range("noise", noise, 0, 0.5)
        self.gamma = check_range("gamma", gamma, 0.2, 5)

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes colour images; see `Transform`."""
        return {
            name: replace(view, rgb=self._photographed(view.rgb, generator))
            for name, view in views.items()
        }

    def _photographed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        batch = len(images)
        deviation = uniform(self.blur_px, batch, generator)
        noise = 255 * uniform(self.noise, batch, generator)
        shortest, longest = (math.log(end) for end in self.gamma)
        gamma = uniform((shortest, longest), batch, generator).exp()
        values = images.float()
        if self.blur_px[1]:
            values = _blurred(values, deviation)
        if self.noise[1]:
            drawn = torch.randn(values.shape, generator=generator, device=values.device)
            values = torch.addcmul(values, drawn, noise[:, None, None, None])
        levels = values.round_().clamp_(0, 255)
        if self.gamma == (1.0, 1.0):
            return levels.to(images.dtype)
        # A table of 256 values costs less than a power of each pixel.
        table = 255 * (torch.arange(256, device=gamma.device) / 255) ** gamma[:, None]
        looked_up = table.round_().to(images.dtype).gather(1, levels.flatten(1).long())
        return looked_up.reshape(images.shape)


def _blurred(values: Tensor, deviation: Tensor) -> Tensor:
    """Blurs images (B, H, W, 3) by Gaussians of standard deviations (B,) pixels; borders repeat."""
    places = torch.arange(-_REACH, _REACH + 1, device=values.device)
    # Without blur, all weights but the middle one underflow to 0.
    weights = (-0.5 * (places / deviation.clamp(min=1e-3)[:, None]).square()).softmax(dim=1)
    planes = values.movedim(-1, 1)
    padded = functional.pad(planes, (_REACH,) * 4, mode="replicate")
    for axis, size in ((2, values.shape[1]), (3, values.shape[2])):
        parts = [padded.narrow(axis, at, size) for at in range(2 * _REACH + 1)]
        padded = weights[:, 0, None, None, None] * parts[0]
        for at, part in enumerate(parts[1:], start=1):
            padded.addcmul_(weights[:, at, None, None, None], part)
    return padded.movedim(1, -1).contiguous()
