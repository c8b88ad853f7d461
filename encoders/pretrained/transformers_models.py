"""Models of transformers by name: the import of the library, and the folder of a model."""

import importlib
from pathlib import Path
from types import ModuleType

from stringline.encoders.pretrained.torchvision_operators import declare_torchvision_operators


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
