"""Depth from single colour images by networks of transformers."""

from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import FINITE, POSITIVE, unknown_name
from stringline.encoders.pretrained.transformers_models import import_transformers, model_source

GIVES = ("metric", "inverse")
# Families whose output is metric by construction; others may declare `depth_estimation_type`.
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
            model: A folder written by `save_pretrained`, or a name on the Hugging Face hub.
            gives: `metric` for metres, `inverse` for a linear function of 1 / depth; None: as the
                model declares.
            inverse_scale: For `inverse`: depth is 1 / (scale x + shift) of the output x, in metres.
            inverse_shift: For `inverse`: the shift, 1/m.
            device: Device of the network.

        Raises:
            ValueError: transformers is missing, the model cannot be loaded, or the unit of its
                output is unknown.
        """
        transformers = import_transformers("depth")
        self.model = model
        self._processor, network = _load(transformers, model)
        self._network: Any = network.to(device).eval()
        self._gives = _kind(model, network.config, gives)
        if self._gives == "inverse" and inverse_scale not in POSITIVE:
            raise ValueError(
                f"{model!r} returns inverse depth of unknown scale; inverse_scale is "
                f"{inverse_scale}. Set inverse_scale (above 0) and inverse_shift, or use a metric "
                f"model such as {EXAMPLE}."
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
            (N, H, W) metres along the optical axis; NaN for pixels without depth.
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


def _load(transformers: ModuleType, model: str) -> tuple[Any, Any]:
    """Returns the image processor and the network."""
    source = model_source(model, "config.json and weights", EXAMPLE)
    try:
        return (
            transformers.AutoImageProcessor.from_pretrained(source),
            transformers.AutoModelForDepthEstimation.from_pretrained(source, use_safetensors=True),
        )
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"transformers cannot load a depth model {model!r}, neither from a folder nor from the "
            f"hub ({reason}). A folder needs config.json, preprocessor_config.json and weights; a "
            f"name on the hub is {EXAMPLE}."
        ) from error


def _kind(model: str, config: Any, gives: str | None) -> str:
    """Returns the kind of depth that the model returns."""
    if gives is not None and gives not in GIVES:
        raise unknown_name("meaning of a depth model's output", gives, GIVES)
    stated = {"metric": "metric", "relative": "inverse"}.get(
        str(getattr(config, "depth_estimation_type", ""))
    )
    known = "metric" if config.model_type in METRIC_FAMILIES else stated
    if known is None and gives is None:
        raise ValueError(
            f"{model!r} does not declare whether its output is metric or inverse depth; set "
            f"gives=metric or gives=inverse."
        )
    if known is not None and gives not in (None, known):
        raise ValueError(f"{model!r} declares {known} depth; got gives={gives}.")
    return gives or known or ""
