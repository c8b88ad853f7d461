"""What was asked for, in words: as an array, so that it travels with an observation, and as a number, so that it batches.

Imports without torch.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Observation

KEY = "instruction"
NUMBER_KEY = "instruction_number"
NOTHING_SAID = 0


def instruction_array(text: str) -> NDArray[np.uint8]:
    """Returns a text as the key `instruction` of an observation has it: its UTF-8 bytes, (L,)."""
    return np.frombuffer(text.encode(), np.uint8)


def instruction_of(observation: Observation) -> str | None:
    """Returns the text that an observation brings, or None where it brings none.

    Raises:
        ValueError: What it brings is no text.
    """
    if KEY not in observation:
        return None
    array = np.asarray(observation[KEY])
    try:
        if array.ndim != 1 or array.dtype != np.uint8:
            raise ValueError(f"got shape {array.shape} of {array.dtype}")
        return array.tobytes().decode()
    except ValueError as error:  # Bytes that are no UTF-8 as well.
        raise ValueError(
            f"{KEY} is no text ({error}); allowed: its UTF-8 bytes, (L,) uint8."
        ) from error


def instruction_number(text: str) -> int:
    """Returns what stands for a text in a batch: 63 bits of its SHA-256, the same everywhere; 0 for no text.

    Two of a million different texts share a number with a chance of 1 in 18 million.
    """
    if not text:
        return NOTHING_SAID
    return max(1, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1)
