"""Classifiers learn; studies of places have their known answers; clips need their order."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.encoders.perception.conftest import COLOURS, SIDE, encoder, moving, noise
from torch import nn

from stringline.datasets.images.image_store import ImageStore
from stringline.encoders.perception.classifier import Classifier, ClassifierSettings, Pool
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_network import Examples, stack
from stringline.encoders.perception.studies import (
    FrameOrder,
    PatchShuffling,
    ResolutionTransfer,
    changed_tokens,
    moved,
    shuffled,
)
from stringline.encoders.positions.absolute import LearnedEncoding
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.positions.lie import LieRE
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    NoEncoding,
    RopeMixed,
    Rotary,
)

WAVES = (2.0, 8.0)
RELATIVE: dict[str, EncodingFactory] = {
    "cayley": partial(CayleyString, wavelengths=WAVES),
    "circulant": partial(CirculantString, wavelengths=WAVES, block=4),
    "rope_mixed": partial(RopeMixed, wavelengths=WAVES),
}
ABSOLUTE: dict[str, EncodingFactory] = {
    "liere": LieRE,
    "learned": partial(LearnedEncoding, cells=8, low=0.0, high=4.0),
}


def network(encoding: EncodingFactory | None = None, pool: Pool = "cls") -> Classifier:
    """Returns a small classifier of colours with drawn weights."""
    torch.manual_seed(0)
    contract = ImageContract(height=SIDE, width=SIDE, names=tuple(COLOURS))
    made = Classifier(ClassifierSettings(image_encoder=encoder(encoding), pool=pool), contract)
    encodings = made.image_encoder.blocks.encodings
    assert isinstance(encodings, nn.Module)
    for parameter in encodings.parameters():
        # The table of absolute places starts near zero.
        parameter.data += 0.3 * torch.randn(parameter.shape)
    return made.eval()


def pixels() -> dict[str, torch.Tensor]:
    return {"rgb/image": torch.from_numpy(noise(0, 5, SIDE, SIDE, 3))}


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_without_encoding_the_order_of_patches_has_no_effect(pool: Pool) -> None:
    plain, placed = network(NoEncoding, pool), network(RELATIVE["cayley"], pool)
    with torch.no_grad():
        before, before_placed = plain.logits(pixels()), placed.logits(pixels())
        with changed_tokens(plain, shuffled(1)), changed_tokens(placed, shuffled(1)):
            assert (plain.logits(pixels()) - before).abs().max() < 1e-4
            assert (placed.logits(pixels()) - before_placed).abs().max() > 1e-4
        assert torch.equal(plain.logits(pixels()), before), "the change ends with the block"


@pytest.mark.parametrize("name", [*RELATIVE, *ABSOLUTE])
def test_a_common_offset_matters_to_absolute_encodings_and_liere_only(name: str) -> None:
    made = network({**RELATIVE, **ABSOLUTE}[name])
    with torch.no_grad():
        before = made.logits(pixels())
        with changed_tokens(made, moved(2.0, 0)):
            change = (made.logits(pixels()) - before).abs().max()
    assert bool(change < 1e-4) == (name in RELATIVE), change


@pytest.mark.parametrize("share_layers", [True, False])
def test_zero_frequencies_begin_without_effect_and_learn(share_layers: bool) -> None:
    factory = encoder(RELATIVE["cayley"], share_layers=share_layers, zero_frequencies=True)
    contract = ImageContract(height=SIDE, width=SIDE, names=("blue", "green", "red"))
    made = Classifier(ClassifierSettings(image_encoder=factory), contract)
    before = made.logits(pixels())
    with changed_tokens(made, shuffled(1)):
        assert (made.logits(pixels()) - before).abs().max() < 1e-4
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0)
    made.loss(pixels() | {"label": torch.tensor([0, 1, 2, 0, 1])}).backward()
    optimizer.step()
    for encoding in made.image_encoder.blocks.encodings:
        assert isinstance(encoding, Rotary)
        assert (encoding.frequencies() != 0).any()


def test_zero_frequencies_need_an_encoding() -> None:
    contract = ImageContract(height=SIDE, width=SIDE, names=("blue", "green"))
    factory = encoder(NoEncoding, zero_frequencies=True)
    with pytest.raises(ValueError, match="zero_frequencies is true without an encoding"):
        Classifier(ClassifierSettings(image_encoder=factory), contract)


def test_it_reads_images_of_another_size_than_in_training() -> None:
    made = network()
    small = {"rgb/image": torch.from_numpy(noise(0, 2, SIDE // 2, SIDE, 3))}
    with torch.no_grad():
        assert made.logits(small).shape == (2, 3)


def test_the_measures_are_those_of_the_predictions(colours: ImageStore) -> None:
    made = network()
    torch.nn.init.zeros_(made.head.weight)
    made.head.bias.data = torch.tensor([0.0, 0.0, 1.0])  # It always says "red".
    found = made.measure(Examples(colours, range(20), made.contract, batch_size=6))
    truth = [colours[number].label for number in range(20)]
    assert found.values["top1"] == pytest.approx(truth.count("red") / 20)
    assert found.values["chance"] == pytest.approx(7 / 20)
    assert list(found.each["correct"]) == [float(name == "red") for name in truth]
    assert found.drawings[4].truth == truth[4]
    assert found.drawings[4].prediction == "red"


def test_unknown_classes_and_missing_registers_are_named(colours: ImageStore) -> None:
    contract = ImageContract(height=SIDE, width=SIDE, names=("blue", "green"))
    made = Classifier(ClassifierSettings(image_encoder=encoder()), contract)
    with pytest.raises(ValueError, match="no class among those of the training 'red'"):
        made.targets(colours[2], np.random.default_rng(0))
    bare = Classifier(ClassifierSettings(image_encoder=encoder(registers=0)), contract)
    with pytest.raises(ValueError, match="pool is 'cls' and registers is 0"):
        bare.logits(pixels())
    with pytest.raises(ValueError, match="at least two"):
        Classifier(
            ClassifierSettings(image_encoder=encoder()), ImageContract(height=SIDE, width=SIDE)
        )


@pytest.mark.slow
def test_a_clip_is_told_from_its_reverse_by_the_order_of_its_frames() -> None:
    torch.manual_seed(0)
    contract = ImageContract(height=SIDE, width=SIDE, frames=5, names=("left", "right"))
    factory = encoder(frame_wavelengths=(2.0, 8.0))
    made = Classifier(ClassifierSettings(image_encoder=factory), contract)
    generator = np.random.default_rng(0)
    clips = [moving(way, seed) for seed in range(8) for way in (True, False)]
    batch = stack([made.example(clip, generator) for clip in clips])
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    for _ in range(50):
        optimizer.zero_grad()
        made.loss(batch).backward()
        optimizer.step()
    made.eval()
    held_out = [moving(way, seed) for seed in range(100, 110) for way in (True, False)]
    examples = Examples(held_out, range(20), contract)
    right = made.measure(examples).values["within_pair"]
    rows = {row["setting"]: row["within_pair"] for row in FrameOrder().measure(made, examples)}
    assert right >= 0.9
    assert rows["reversed"] == pytest.approx(1 - right), "each is taken for the opposite"
    # The middle frame of a clip is that of its reverse.
    assert rows["middle frame"] == pytest.approx(0.5)


def test_each_clip_has_an_order_of_its_own() -> None:
    contract = ImageContract(height=SIDE, width=SIDE, frames=5, depth=True, names=("left", "right"))
    made = Classifier(ClassifierSettings(image_encoder=encoder()), contract)
    depth = np.arange(5, dtype=np.uint16)[:, None, None].repeat(SIDE, 1).repeat(SIDE, 2)
    clips = [replace(moving(True, seed), depth=depth) for seed in range(6)]
    seen: list[torch.Tensor] = []

    def record(module: nn.Module, given: tuple[dict[str, torch.Tensor]]) -> None:
        seen.append(given[0]["depth/image"][:, :, 0, 0].long())

    made.image_encoder.register_forward_pre_hook(record)
    FrameOrder().measure(made, Examples(clips, range(6), contract))
    usual, backwards, mixed, first, middle = seen
    assert usual.tolist() == [[0, 1, 2, 3, 4]] * 6
    assert backwards.tolist() == [[4, 3, 2, 1, 0]] * 6
    assert mixed.sort(dim=1).values.tolist() == usual.tolist()
    assert len(mixed.unique(dim=0)) > 1
    assert (first.unique().tolist(), middle.unique().tolist()) == ([0], [2])


def test_patches_of_tubelets_are_shuffled_with_their_changes() -> None:
    contract = ImageContract(height=SIDE, width=SIDE, frames=4, names=("left", "right"))
    torch.manual_seed(0)
    made = Classifier(ClassifierSettings(image_encoder=encoder(NoEncoding, tubelet=2)), contract)
    clip = torch.from_numpy(noise(0, 2, 4, SIDE, SIDE, 3))
    before = made.logits({"rgb/image": clip})
    with changed_tokens(made, shuffled(0)):
        after = made.logits({"rgb/image": clip})
        tokens = made.image_encoder.tokens({"rgb/image": clip}).features
    assert torch.allclose(before, after, atol=1e-5)
    assert not torch.allclose(tokens, made.image_encoder.tokens({"rgb/image": clip}).features)


def test_orders_of_frames_need_clips(colours: ImageStore) -> None:
    made = network()
    with pytest.raises(ValueError, match="got images; allowed: clips"):
        FrameOrder().measure(made, Examples(colours, range(4), made.contract))


def test_a_study_lists_its_settings_and_the_share_of_changed_predictions(
    colours: ImageStore,
) -> None:
    made = network(NoEncoding)
    examples = Examples(colours, range(6), made.contract)
    rows = PatchShuffling(permutations=2).measure(made, examples)
    assert [(row["setting"], row["changed"]) for row in rows] == [
        ("permutation 0", 0.0),
        ("permutation 1", 0.0),
    ]
    assert [row["setting"] for row in ResolutionTransfer([8, 12]).measure(made, examples)] == [
        "8 px",
        "12 px",
    ]
    with pytest.raises(ValueError, match="sizes is .64.; allowed: up to 16"):
        ResolutionTransfer([64]).measure(
            made, replace(examples, contract=replace(made.contract, fit="resize"))
        )
