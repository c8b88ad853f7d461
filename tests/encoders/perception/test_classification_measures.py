"""Top-1, and the comparison within pairs of classes."""

import numpy as np
import pytest

from stringline.encoders.perception.classifier import classified, within_pairs

LOGITS = np.array([[2, 1, 0], [0, 3, 1], [1, 0, 0.5], [5, 4, 6]])
LABELS = np.array([0, 1, 2, 2])


def test_top_1_and_chance() -> None:
    found = classified(LOGITS, LABELS)
    assert found.predicted.tolist() == [0, 1, 0, 2]
    assert (found.top_1, found.chance) == (0.75, 0.5)


def test_within_a_pair_only_both_logits_count() -> None:
    logits = np.array([[1, 0, 9, 9], [0, 1, 9, 9], [9, 9, 2, 2], [9, 9, 0, 5]])
    found = within_pairs(logits, [0, 0, 2, 3], [1, 0, 3, 2])
    assert found.tolist() == [True, False, False, True]


def test_errors_are_named() -> None:
    with pytest.raises(ValueError, match=r"label must be an integer from 0 to 2 \(got 3\)"):
        classified(LOGITS, [0, 1, 2, 3])
    with pytest.raises(ValueError, match=r"shape \(4, 3\) and the labels \(3,\)"):
        classified(LOGITS, LABELS[:3])
    with pytest.raises(ValueError, match="logit is not finite"):
        classified(LOGITS * np.nan, LABELS)
    with pytest.raises(ValueError, match=r"partners are \[1, 0\]; allowed: one of 3 classes"):
        within_pairs(LOGITS, LABELS, [1, 0])
    with pytest.raises(ValueError, match=r"partners are \[1, 0, 2\]; allowed: pairs of two"):
        within_pairs(LOGITS, LABELS, [1, 0, 2])
