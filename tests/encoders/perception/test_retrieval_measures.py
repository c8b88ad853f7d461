"""Recalls of both directions, with equal captions as hits and the chance of the pool."""

import numpy as np
import pytest

from stringline.encoders.perception.two_towers import image_to_text, text_to_image

CAPTIONS = [["a red mug"], ["a lamp", "a tall lamp"], ["a red mug"], ["a chair"]]
TEXTS = ["a red mug", "a lamp", "a chair", "a tall lamp", "a red mug"]


def test_all_equal_captions_are_hits() -> None:
    table = np.zeros((4, 5))
    table[0] = [0.1, 0.5, 0.4, 0.3, 0.9]  # The second "a red mug" comes first.
    table[1] = [0.9, 0.1, 0.8, 0.5, 0.7]
    table[2] = [0.2, 0.9, 0.8, 0.1, 0.0]
    table[3] = [0.0, 0.1, 0.5, 0.2, 0.3]
    texts = image_to_text(table, CAPTIONS, TEXTS)
    assert texts.ranks.tolist() == [0, 3, 2, 0]
    assert texts.right.tolist() == [2, 2, 2, 1]
    assert (texts.pool, texts.recall(1), texts.recall(3)) == (5, 0.5, 0.75)
    images = text_to_image(table, CAPTIONS, TEXTS)
    assert images.ranks.tolist() == [1, 3, 2, 0, 0]
    assert images.pool == 4
    assert images.recall(1) == 0.4
    assert images.hits(1).tolist() == [False, False, False, True, True]


def test_random_similarities_are_at_chance() -> None:
    random = np.random.default_rng(0)
    texts = [f"text {n % 150}" for n in range(200)]  # 50 captions occur twice.
    captions = [[text] for text in texts]
    found = [image_to_text(random.normal(size=(200, 200)), captions, texts) for _ in range(20)]
    for k in (1, 5, 10):
        chance = found[0].chance(k)
        assert np.mean([each.recall(k) for each in found]) == pytest.approx(
            chance, abs=4 * np.sqrt(chance / 4000)
        )
    assert found[0].chance(1) == pytest.approx((100 * 1 + 100 * 2) / 200 / 200)


def test_one_right_entry_has_the_chance_k_of_pool() -> None:
    found = image_to_text(np.eye(20), [[str(n)] for n in range(20)], [str(n) for n in range(20)])
    assert found.to_dict() == pytest.approx(
        {
            "queries": 20,
            "pool": 20,
            "recall_at_1": 1,
            "chance_at_1": 0.05,
            "recall_at_5": 1,
            "chance_at_5": 0.25,
            "recall_at_10": 1,
            "chance_at_10": 0.5,
        }
    )
    assert found.chance(30) == 1


def test_a_constant_network_finds_nothing() -> None:
    found = text_to_image(
        np.ones((20, 20)), [[str(n)] for n in range(20)], list(map(str, range(20)))
    )
    assert found.recall(10) == 0


def test_errors_are_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 5\) for 4 images and 5 texts"):
        image_to_text(np.zeros((3, 5)), CAPTIONS, TEXTS)
    with pytest.raises(ValueError, match="2 of 4 queries have no right entry .* image 'a red mug'"):
        image_to_text(np.zeros((4, 2)), CAPTIONS, ["a lamp", "a chair"])
    with pytest.raises(ValueError, match="1 of 1 queries .* the text 'a dog'; leave them out"):
        text_to_image(np.zeros((4, 1)), CAPTIONS, ["a dog"])
    with pytest.raises(ValueError, match="similarity is not finite"):
        text_to_image(np.full((4, 5), np.nan), CAPTIONS, TEXTS)
