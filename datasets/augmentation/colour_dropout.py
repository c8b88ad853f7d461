"""Loss of colour, so that a network also learns from depth alone."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from stringline.datasets.augmentation.augment import CameraBatch, Transform
from stringline.datasets.contract.argument_checks import Range

GREY = 128


class ColourDropout(Transform):
    """Replaces the colours of an example by grey; depth, intrinsics and segments stay.

    Modality dropout after Neverova et al. 2015 (ModDrop, arXiv 1501.00102). In contrast to it, a
    single modality is dropped, and its values become grey (128) instead of zero, so that dropped
    colours do not look like a dark room. All cameras of an example lose their colours together,
    because the colours of one camera could replace depth.
    """

    def __init__(self, *, probability: float = 0.5) -> None:
        """Sets the probability that an example loses its colours, 0 to 1.

        Raises:
            ValueError: The probability is out of range.
        """
        super().__init__()
        Range(least=0, most=1).check(probability=probability)
        self.probability = float(probability)

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Removes colours; see `Transform`.

        Raises:
            ValueError: A camera has no depth, so that nothing of its images would be left.
        """
        for name, view in views.items():
            if view.depth is None:
                raise ValueError(
                    f"Camera {name} has no depth, and without colours nothing of its images would "
                    "be left. Use another augmentation, or a store with depth."
                )
        if not views:
            return {}
        batch = len(next(iter(views.values())).rgb)
        drawn = torch.rand(batch, generator=generator, device=generator.device)
        dropped = (drawn < self.probability)[:, None, None, None]
        return {
            name: replace(view, rgb=view.rgb.masked_fill(dropped, GREY))
            for name, view in views.items()
        }
