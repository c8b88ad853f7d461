"""Depth from single colour images, by a network that transformers loads."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import FINITE, POSITIVE, unknown_name
from stringline.encoders.pretrained.torchvision_operators import declare_torchvision_operators

GIVES = ("metric", "inverse")
# Families whose output is metres by construction; others say it in `depth_estimation_type`, or not
# at all.
METRIC_FAMILIES = frozenset({"zoedepth", "depth_pro", "glpn"})
EXAMPLE = "depth-anything/Depth-Anything-V2-Metric-Indoor-Small-hf"


class MonocularDepth:
    """Estimates the depth of images with a pre-trained network."""

    def __init__(
        self,
        model: str,
        *,
        gives: str | None = None,
        inverse_scale: float | None = None,
        inverse_shift: float = 0.0,
        device: str = "cpu",
    ) -> None:
        """Loads the network.

        Args:
            model: A folder that `save_pretrained` wrote, or a name on the Hugging Face hub.
            gives: `metric` for metres, `inverse` for a linear function of 1 / depth; None: what the
                model says of itself.
            inverse_scale: With `inverse`: depth is 1 / (scale x + shift) of the output x, in
                metres.
            inverse_shift: The same, 1/m.
            device: Where it runs.

        Raises:
            ValueError: transformers is missing, the model cannot be loaded, or it is not known how
                its output becomes metres.
        """
        transformers = _transformers()
        self.model = model
        if model.startswith((".", "/", "~")) and not Path(model).expanduser().is_dir():
            raise ValueError(
                f"There is no folder {model}. Give one that holds config.json and weights, or a "
                f"name such as {EXAMPLE}."
            )
        source = str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else model
        try:
            self._processor: Any = transformers.AutoImageProcessor.from_pretrained(source)
            network = transformers.AutoModelForDepthEstimation.from_pretrained(
                source, use_safetensors=True
            )
        except (OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"{model!r} is no depth model that transformers loads, neither a folder here nor "
                f"a name on the hub ({reason}). "
                f"Such a folder holds config.json, preprocessor_config.json and weights; such a "
                f"name is {EXAMPLE}."
            ) from error
        self._network: Any = network.to(device).eval()
        self._gives = _meaning(model, network.config, gives)
        if self._gives == "inverse" and inverse_scale not in POSITIVE:
            raise ValueError(
                f"{model!r} gives inverse depth without a scale, so metres cannot be known: take "
                f"a metric model such as "
                f"{EXAMPLE}, or give inverse_scale (above 0) and inverse_shift; got "
                f"{inverse_scale}."
            )
        FINITE.check(inverse_shift=inverse_shift)
        self._scale = inverse_scale or 1.0
        self._shift = inverse_shift
        self._device = device

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Estimates depth.

        Args:
            images: (N, H, W, 3) uint8.

        Returns:
            (N, H, W) metres along the optical axis; NaN where the output has no depth.
        """
        inputs = self._processor(
            images=[np.array(image) for image in images], return_tensors="pt"
        ).to(self._device)
        sizes = [tuple(images.shape[1:3])] * len(images)
        found = self._processor.post_process_depth_estimation(
            self._network(**inputs), target_sizes=sizes
        )
        values = torch.stack([each["predicted_depth"] for each in found]).float().cpu().numpy()
        if self._gives == "inverse":
            inverse = self._scale * values + self._shift
            values = np.where(inverse > 0, 1.0 / np.where(inverse > 0, inverse, 1.0), np.nan)
        return np.asarray(values, np.float32)


def _meaning(model: str, config: Any, asked: str | None) -> str:
    """Says what the output is.

    Raises:
        ValueError: The model does not say and the user neither, or they disagree.
    """
    if asked is not None and asked not in GIVES:
        raise unknown_name("meaning of a depth model's output", asked, GIVES)
    stated = {"metric": "metric", "relative": "inverse"}.get(
        str(getattr(config, "depth_estimation_type", ""))
    )
    known = "metric" if config.model_type in METRIC_FAMILIES else stated
    if known is None and asked is None:
        raise ValueError(
            f"{model!r} does not say whether its output is metres or inverse depth; give "
            f"gives=metric or gives=inverse."
        )
    if known is not None and asked not in (None, known):
        raise ValueError(f"{model!r} says that it gives {known} depth; got gives={asked}.")
    return asked or known or ""


def _transformers() -> ModuleType:
    declare_torchvision_operators()  # Its processors of images import torchvision.
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise ValueError(
            'This needs transformers, which is not installed. Run: pip install "stringline[depth]"'
        ) from error
