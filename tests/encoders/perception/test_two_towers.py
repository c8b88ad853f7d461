"""Two towers learn pairs; equal captions are pairs; texts that do not fit are named or counted."""

import numpy as np
import pytest
import torch
from tests.encoders.perception.conftest import COLOURS, SIDE, encoder

from stringline import ImageStore, LabelledClip, TextTower, TwoTowers
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_network import Examples, stack
from stringline.encoders.perception.text_tower import BytePairs
from stringline.encoders.perception.two_towers import TwoTowersSettings

TEXTS = [f"a {name} wall" for name in COLOURS]
PAIRS = BytePairs.trained(TEXTS, 300).to_text()


def towers(batch_size: int = 12) -> TwoTowers:
    """Returns small towers."""
    torch.manual_seed(0)

    def text(tokeniser: str) -> TextTower:
        return TextTower(tokeniser=tokeniser, dim=16, depth=1, heads=2, length=8)

    settings = TwoTowersSettings(
        image_encoder=encoder(depth=1), text=text, batch_size=batch_size, width=16
    )
    return TwoTowers(settings, ImageContract(height=SIDE, width=SIDE, tokeniser=PAIRS))


def test_towers_find_captions_and_images_after_a_few_steps(colours: ImageStore) -> None:
    made = towers()
    generator = np.random.default_rng(0)
    batch = stack([made.example(colours[number], generator) for number in range(12)])
    same = batch["caption"][:, None] == batch["caption"]
    assert same.sum() == 3 * 4**2, "equal captions are pairs"
    optimizer = torch.optim.AdamW(made.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        made.loss(batch).backward()
        optimizer.step()
    measured = made.eval().measure(Examples(colours, range(12, 30), made.contract))
    found = measured.values
    assert found["i2t_recall_at_1"] >= 0.9
    assert found["t2i_recall_at_1"] >= 0.9
    assert (found["t2i_pool"], found["i2t_pool"]) == (18, 3)
    assert found["i2t_chance_at_1"] == pytest.approx(1 / 3)
    assert found["truncated"] == 0
    each = measured.each
    assert sum(each["t2i_first"]) / sum(each["texts"]) == found["t2i_recall_at_1"]
    assert sum(each["texts"]) == 3, "one for each text of the pool"


def test_padding_and_neighbours_in_the_batch_change_no_text() -> None:
    short = towers().text.eval()
    numbers = torch.from_numpy(np.stack([short.numbers(text) for text in TEXTS]))
    with torch.no_grad():
        together = short(numbers)
        used = int((numbers[0] != 0).sum())
        torch.testing.assert_close(short(numbers[:1, :used])[0], together[0])


def test_texts_that_do_not_fit_are_named() -> None:
    made = towers()
    with pytest.raises(ValueError, match="tokens; allowed: at most 8"):
        made.text.numbers("a wall as blue as the sea under the sky of a late summer")
    with pytest.raises(ValueError, match="at least one character"):
        made.text.numbers(" ")
    cut = TextTower(tokeniser=PAIRS, dim=16, heads=2, length=2, truncate=True)
    assert cut.is_longer(TEXTS[0])
    assert cut.numbers(TEXTS[0]).shape == (2,)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 2"):
        towers(batch_size=1)
    clip = LabelledClip(rgb=np.zeros((2, SIDE, SIDE, 3), np.uint8))
    with pytest.raises(ValueError, match="allowed: images with captions"):
        made.targets(clip, np.random.default_rng(0))


def test_the_same_texts_give_the_same_byte_pairs_and_survive_as_text() -> None:
    assert BytePairs.trained(reversed(TEXTS), 300).to_text() == PAIRS
    assert (
        BytePairs(PAIRS).numbers("A Blue wall", 8).tolist()
        == BytePairs(PAIRS).numbers("a blue wall", 8).tolist()
    )
    assert BytePairs(PAIRS).count("Ü") > 0, "bytes cover every letter"
