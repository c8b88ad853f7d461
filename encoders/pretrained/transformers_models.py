"""Models of the library transformers: text encoders, and depth from single colour images.

A model is given by its folder or its name on the hub. Text encoders come with their tokenizers.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.contract.argument_checks import FINITE, POSITIVE, unknown_name
from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators


def import_transformers(extra: str) -> ModuleType:
    """Returns transformers; raises a ValueError with the extra to install if it is missing."""
    declare_torchvision_operators()  # Image processors and some models import torchvision.
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"This needs transformers, which is not installed. Run: pip install "
            f'"stringline[{extra}]"'
        ) from error


def model_source(model: str, contents: str, example: str) -> str:
    """Returns the folder of a model, or its name on the hub.

    Raises:
        ValueError: `model` is a path without a folder; the message states the `contents` of such a
            folder, and an `example` of a name.
    """
    folder = Path(model).expanduser()
    if model.startswith((".", "/", "~")) and not folder.is_dir():
        raise ValueError(
            f"There is no folder {model}. Give a folder with {contents}, or a name such as "
            f"{example}."
        )
    return str(folder) if folder.is_dir() else model


EXAMPLE = "openai/clip-vit-base-patch32"

Choose = Callable[[Any], tuple[str, Any]]
"""Returns the class to load for the configuration of a model, and its own; None: the same one."""

CONFIG = "config.json"
TOKENIZER = "tokenizer"
# Patterns of the files with a vocabulary, for all tokenizers of transformers.
_VOCABULARIES = ("tokenizer*", "vocab*", "*.model")


@dataclass(frozen=True)
class StoredText:
    """The folder of a text encoder without weights: `config.json`, and the folder `tokenizer`.

    The tokenizer is apart from the configuration, which can change what transformers makes of it.
    """

    folder: Path

    def __str__(self) -> str:
        """Returns the path of the folder."""
        return str(self.folder)


@dataclass(frozen=True)
class TextModel:
    """A text encoder with its tokenizer.

    Attributes:
        tokenizer: A tokenizer of transformers.
        network: A network of transformers, in evaluation mode.
        missing: Names of the weights that the folder lacks; they are random.
    """

    tokenizer: Any
    network: Any
    missing: tuple[str, ...] = ()

    def files(self) -> dict[str, bytes]:
        """Returns the files of a `StoredText` by their paths in its folder."""
        with TemporaryDirectory() as name:
            folder = Path(name)
            self.network.config.architectures = [type(self.network).__name__]
            self.network.config.to_json_file(folder / CONFIG)
            self.tokenizer.save_pretrained(folder / TOKENIZER)
            paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def load_text_model(model: str | StoredText, choose: Choose) -> TextModel:
    """Loads a text encoder and its tokenizer.

    Args:
        model: A folder written by `save_pretrained`, a name on the Hugging Face hub, or a
            `StoredText`, whose network has random weights.
        choose: Chooses the class of the network.

    Raises:
        ValueError: transformers is missing, the folder does not exist or has no tokenizer, or
            transformers cannot load it.
    """
    transformers = import_transformers("text")
    if isinstance(model, StoredText):
        with _explained(model):
            config = transformers.AutoConfig.from_pretrained(model.folder, trust_remote_code=False)
        name, chosen = choose(config)
        return TextModel(stored_tokenizer(model), getattr(transformers, name)(chosen).eval())
    source = _text_source(model)
    with _explained(model):
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        config = transformers.AutoConfig.from_pretrained(source)
    name, chosen = choose(config)
    with _explained(model):
        network, report = getattr(transformers, name).from_pretrained(
            source, config=chosen, use_safetensors=True, output_loading_info=True
        )
    return TextModel(tokenizer, network.eval(), tuple(sorted(report["missing_keys"])))


def stored_tokenizer(stored: StoredText) -> Any:
    """Loads a tokenizer; raises a ValueError if transformers is missing or cannot load it."""
    transformers = import_transformers("text")
    with _explained(stored):
        return transformers.AutoTokenizer.from_pretrained(
            stored.folder / TOKENIZER, trust_remote_code=False
        )


def _text_source(model: str) -> str:
    """Returns the folder of a text encoder, or its name on the hub.

    Raises:
        ValueError: `model` is a path without a folder, or a folder without a tokenizer, for which
            transformers would make one of a few tokens.
    """
    source = model_source(model, "an encoder and its tokenizer", EXAMPLE)
    folder = Path(source)
    if folder.is_dir() and not any(any(folder.glob(name)) for name in _VOCABULARIES):
        raise ValueError(
            f"transformers cannot load a text encoder {model!r}: the folder has no tokenizer, such "
            f"as tokenizer.json. Save the tokenizer of the encoder there by its save_pretrained."
        )
    return source


def pooled(outputs: Any, mask: Tensor | None) -> Tensor:
    """Returns features (texts, width): the model's pooled output, or the mean over tokens.

    Args:
        outputs: Outputs of a network. Projected features precede the pooled output.
        mask: (texts, tokens), 1 for tokens of a text, 0 for padding; if None, all are of texts.
    """
    for name in ("text_embeds", "pooler_output"):
        found: Tensor | None = getattr(outputs, name, None)
        if found is not None:
            return found.float()
    states: Tensor = outputs.last_hidden_state.float()
    there = states.new_ones(states.shape[:2]) if mask is None else mask.float()
    return (states * there.unsqueeze(-1)).sum(dim=1) / there.sum(dim=1, keepdim=True)


@contextmanager
def without_reports() -> Iterator[None]:
    """Turns off progress bars and reports of transformers for a block."""
    logging = import_transformers("text").utils.logging
    verbosity = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


@contextmanager
def _explained(model: object) -> Iterator[None]:
    """Raises errors of transformers as a ValueError that names the model."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"transformers cannot load a text encoder {str(model)!r}, neither from a folder nor "
            f"from the hub ({reason})."
        ) from error


GIVES = ("metric", "inverse")
# Families whose output is metric by construction; others may declare `depth_estimation_type`.
METRIC_FAMILIES = frozenset({"zoedepth", "depth_pro", "glpn"})
DEPTH_EXAMPLE = "depth-anything/Depth-Anything-V2-Metric-Indoor-Small-hf"


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
            gives: metric, for metres, or inverse, for a linear function of 1 / depth; None: as
                declared by the model.
            inverse_scale: Scale of inverse depth, 1/m per unit of the output x, whose depth is 1 /
                (scale x + shift); required with gives=inverse.
            inverse_shift: Shift of inverse depth, 1/m; used with gives=inverse.
            device: Device of the network: cpu or cuda.

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
                f"model such as {DEPTH_EXAMPLE}."
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
    source = model_source(model, "config.json and weights", DEPTH_EXAMPLE)
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
            f"name on the hub is {DEPTH_EXAMPLE}."
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
