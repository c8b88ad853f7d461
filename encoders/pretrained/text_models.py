"""Text encoders of transformers with their tokenizers, from folders or by name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from stringline.encoders.pretrained.transformers_models import import_transformers, model_source

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
        mask: (texts, tokens), 1 for tokens of a text, 0 for padding; None: all are of texts.
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
