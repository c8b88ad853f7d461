"""Instructions in words: as bytes in an observation, and as a number in a batch."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Observation

KEY = "instruction"
NUMBER_KEY = "instruction_number"
NOTHING_SAID = 0
PER_STEP = "series/instruction_index"
"""Series (T,): the place of the instruction of each step in `INSTRUCTIONS`, where they change."""
INSTRUCTIONS = "instructions"
"""Attribute `extra` of an episode whose instruction changes: a list of its instructions."""


def instruction_array(text: str) -> NDArray[np.uint8]:
    """Returns the UTF-8 bytes (L,) of a text, the value of the key `instruction`."""
    return np.frombuffer(text.encode(), np.uint8)


def instruction_of(observation: Observation) -> str | None:
    """Returns the instruction of an observation, or None; raises ValueError if it is not UTF-8."""
    if KEY not in observation:
        return None
    array = np.asarray(observation[KEY])
    try:
        if array.ndim != 1 or array.dtype != np.uint8:
            raise ValueError(f"got shape {array.shape} of {array.dtype}")
        return array.tobytes().decode()
    except ValueError as error:  # UnicodeDecodeError is a ValueError.
        raise ValueError(
            f"{KEY} is not text ({error}); allowed: UTF-8 bytes, (L,) uint8."
        ) from error


def instruction_number(text: str) -> int:
    """Returns the number of a text in a batch: 63 bits of its SHA-256, or 0 for an empty text.

    Two of a million different texts have the same number with a probability of 1 in 18 million.
    """
    if not text:
        return NOTHING_SAID
    return max(1, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1)
