"""Initial weights of a network of perception from the checkpoint of another one."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_checkpoint import CONTRACT, ENCODER, is_perception
from stringline.encoders.perception.perception_network import PerceptionNetwork
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.checkpoint_digest import sha256_of
from stringline.encoders.training.partial_loading import LoadedParts, load_partial_weights

logger = logging.getLogger(__name__)

TEXT = "text"
"""The text tower of a network."""


@dataclass(frozen=True)
class InitialNetwork:
    """A checkpoint of `stringline-perceive`, and the parts of it that initialise a new run.

    Attributes:
        checkpoint: Its folder.
        include: Parts to load, such as `image_encoder.blocks`; empty: the image encoder, and the
            text tower where both networks have one.
        exclude: Parts that keep their initial weights, or `mismatched`: all that do not fit.
    """

    checkpoint: Path
    include: Sequence[str] = ()
    exclude: Sequence[str] | str = ()

    def contract(self, contract: ImageContract) -> ImageContract:
        """Returns the contract with the tokeniser of the checkpoint, if its text tower is loaded.

        Raises:
            ValueError: The checkpoint is missing, broken, or of a policy.
        """
        tokeniser = self._description()[CONTRACT]["tokeniser"]
        texts = [part for part in self.include if part.split(".")[0] == TEXT]
        loaded = bool(tokeniser and contract.tokeniser and (texts or not self.include))
        return replace(contract, tokeniser=tokeniser) if loaded else contract

    def load(self, network: PerceptionNetwork) -> LoadedParts:
        """Loads the parts into a network and logs them.

        Raises:
            ValueError: A part is unknown or does not fit.
        """
        both = bool(network.contract.tokeniser and self._description()[CONTRACT]["tokeniser"])
        include = self.include or ([ENCODER, TEXT] if both else [ENCODER])
        loaded = load_partial_weights(
            self.checkpoint, network, include=include, exclude=self.exclude
        )
        logger.info("From %s, %s.", self.checkpoint, loaded)
        return loaded

    def describe(self) -> dict[str, Any]:
        """Returns the settings that decide the initial weights, as plain data."""
        return {
            "checkpoint": sha256_of(self.checkpoint)[:16],
            "include": list(self.include),
            "exclude": self.exclude if isinstance(self.exclude, str) else list(self.exclude),
        }

    def _description(self) -> Mapping[str, Any]:
        description = load_description(self.checkpoint)
        if not is_perception(description):
            raise ValueError(
                f"{self.checkpoint} contains no network of perception; allowed: a checkpoint of "
                f"stringline-perceive."
            )
        return description


def initial_network_of(settings: Mapping[str, Any]) -> InitialNetwork | None:
    """Reads the initial weights from the settings of `configs/perceive.yaml`; None without any.

    Raises:
        ValueError: Parts are named without a checkpoint.
    """
    checkpoint = settings["initialise_from"]
    include, exclude = settings["include"], settings["exclude"]
    if checkpoint is None:
        if given := [name for name in ("include", "exclude") if settings[name]]:
            raise ValueError(f"{given[0]} needs a checkpoint; add initialise_from=CHECKPOINT.")
        return None
    return InitialNetwork(
        Path(str(checkpoint)), [include] if isinstance(include, str) else include, exclude
    )
