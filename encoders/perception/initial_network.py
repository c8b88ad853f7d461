"""Initial weights of a network of perception from the checkpoint of another one."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stringline.datasets.files.replaced_directory import standing
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_checkpoint import (
    CONTRACT,
    ENCODER,
    TEXT,
    is_perception,
)
from stringline.encoders.perception.perception_network import PerceptionNetwork
from stringline.encoders.perception.text_network import TextNetwork
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.checkpoint_digest import sha256_of
from stringline.encoders.training.initial_parts import InitialParts
from stringline.encoders.training.partial_loading import LoadedParts, load_partial_weights

logger = logging.getLogger(__name__)


class InitialNetwork(InitialParts):
    """A checkpoint of `stringline-perceive`, and the parts of it that initialise a new run.

    By default these are the image encoder, and the text tower where both networks have one.
    """

    def contract(self, contract: ImageContract) -> ImageContract:
        """Returns the contract with the tokeniser of the checkpoint, if its text tower is loaded.

        Raises:
            ValueError: The checkpoint is missing, broken, or of a policy.
        """
        tokeniser = self._description()[CONTRACT]["tokeniser"]
        both = bool(tokeniser and contract.tokeniser)
        return replace(contract, tokeniser=tokeniser) if both and self._has_text else contract

    def load(self, network: PerceptionNetwork) -> LoadedParts:
        """Loads the parts into a network and logs them.

        Raises:
            ValueError: A part is unknown or does not fit.
        """
        both = bool(network.contract.tokeniser and self._description()[CONTRACT]["tokeniser"])
        tower = getattr(network, TEXT, None)
        if both and self._has_text and isinstance(tower, TextNetwork):
            tower.check_tokenizer(self._folder / TEXT)
        include = self.include or ([ENCODER, TEXT] if both else [ENCODER])
        loaded = load_partial_weights(self._folder, network, include=include, exclude=self.exclude)
        network.image_encoder.reset_frequencies()
        logger.info("From %s, %s.", self.checkpoint, loaded)
        return loaded

    def describe(self) -> dict[str, Any]:
        """Returns the settings that decide the initial weights, as plain data."""
        return self.described(sha256_of(self._folder)[:16])

    @property
    def _has_text(self) -> bool:
        """Whether the text tower is among the chosen parts."""
        chosen = not self.include or any(part.split(".")[0] == TEXT for part in self.include)
        return chosen and TEXT not in self.exclude

    @property
    def _folder(self) -> Path:
        return standing(Path(self.checkpoint))

    def _description(self) -> Mapping[str, Any]:
        description = load_description(self._folder)
        if not is_perception(description):
            raise ValueError(
                f"{self.checkpoint} contains no network of perception; allowed: a checkpoint of "
                f"stringline-perceive."
            )
        return description
