"""Checkpoints of networks of perception."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from stringline.datasets.extensions.trust import Trust
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_network import PerceptionNetwork
from stringline.encoders.perception.text_tower import TextNetwork
from stringline.encoders.pretrained.initial_weights import without_files
from stringline.encoders.pretrained.transformers_models import StoredText
from stringline.encoders.training.checkpoint import (
    ASKED_FOR,
    WEIGHTS,
    bounded_by,
    build,
    load_description,
    load_weights,
    save_checkpoint,
)
from stringline.encoders.training.partial_loading import IMAGE_CONTRACT

TEXT = "text"
"""The text tower of a network, and the folder of its files in a checkpoint."""

_FILES = "text_files"


def build_network(
    model: Mapping[str, Any], contract: ImageContract, trust: Trust = ASKED_FOR
) -> PerceptionNetwork:
    """Builds a network with random weights of a resolved configuration with `_target_`.

    Raises:
        ValueError: A setting is not valid, or the images lack what the network needs.
    """
    network = build(dict(model), nn.Module, trust, contract=contract)
    if not isinstance(network, PerceptionNetwork):
        raise ValueError(
            f"{model.get('_target_')!r} is not a network of perception; allowed: the heads of "
            f"stringline-perceive."
        )
    return network


def save_network(
    directory: Path,
    network: PerceptionNetwork,
    model: Mapping[str, Any],
    training: Mapping[str, Any],
) -> None:
    """Writes a self-contained checkpoint for `load_perception`.

    `model` is the configuration of the network, `training` the record of its training, plain data.
    """
    tower = getattr(network, TEXT, None)
    own = tower.files() if isinstance(tower, TextNetwork) else {}
    files = {f"{TEXT}/{name}": content for name, content in own.items()}
    description = {
        "model": dict(model),
        IMAGE_CONTRACT: network.contract.to_dict(),
        "training": dict(training),
        **({_FILES: sorted(files)} if files else {}),
    }
    save_checkpoint(directory, network, description, files)


def load_perception(where: str | Path, trust: Sequence[str] = ()) -> PerceptionNetwork:
    """Loads the network of a checkpoint of `stringline-perceive`, in evaluation mode.

    Args:
        where: Its folder.
        trust: Top-level packages whose classes the checkpoint may name, which runs their code.

    Raises:
        ValueError: The checkpoint is missing, broken, newer than this code, of a policy, or names
            a class of a package that is not trusted.
    """
    directory = Path(where)
    description = load_description(directory)
    try:
        model = _with_own_text(directory, description, without_files(description["model"]))
        contract = ImageContract.from_dict(description[IMAGE_CONTRACT])
    except KeyError as error:
        raise ValueError(
            f"{directory} contains no network of perception: {error} is missing."
        ) from error
    consent = Trust(f"The checkpoint {where}", frozenset(trust))
    with bounded_by(directory / WEIGHTS, description):
        network = build_network(model, contract, consent)
    load_weights(directory, network)
    return network.eval()


def _with_own_text(
    directory: Path, description: Mapping[str, Any], model: dict[str, Any]
) -> dict[str, Any]:
    """Returns the configuration of a network whose text tower reads the files of its checkpoint.

    Raises:
        ValueError: A file is missing.
    """
    names = description.get(_FILES, [])
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise ValueError(
            f"The checkpoint {directory} lacks {', '.join(missing)} of its text tower. Copy the "
            f"whole folder."
        )
    own = {**model[TEXT], "model": StoredText(directory / TEXT)} if names else None
    return {**model, TEXT: own} if own else model
