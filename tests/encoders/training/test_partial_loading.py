"""Parts of a checkpoint as initial weights of another model."""

from pathlib import Path

import pytest
import torch
from torch import nn

from stringline.encoders.training.checkpoint import save_checkpoint
from stringline.encoders.training.partial_loading import collapsed, load_partial_weights


class Model(nn.Module):
    """An encoder with a mark, and a head of some width."""

    def __init__(self, actions: int, seed: int, extra: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Module()
        self.encoder.blocks = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.encoder.mark = nn.Parameter(torch.randn(actions, 4))
        self.head = nn.Module()
        self.head.blocks = nn.Linear(4, 4)
        self.head.read = nn.Linear(4, actions)
        if extra:
            self.another = nn.Linear(1, 1)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "c", Model(2, seed=0), {})
    return tmp_path / "c"


def changed(before: Model, after: Model) -> set[str]:
    old = before.state_dict()
    return {name for name, value in after.state_dict().items() if not torch.equal(value, old[name])}


def test_all_parts_of_an_equal_model_are_loaded(checkpoint: Path) -> None:
    model = Model(2, seed=1)
    loaded = load_partial_weights(checkpoint, model)
    assert (loaded.loaded, loaded.initialised, loaded.unused) == (("encoder", "head"), (), ())
    assert str(loaded) == "loaded: encoder, head; initialised: nothing; unused: nothing"
    assert all(
        torch.equal(one, other)
        for one, other in zip(model.parameters(), Model(2, seed=0).parameters(), strict=True)
    )


def test_the_encoder_alone_is_loaded(checkpoint: Path) -> None:
    model = Model(2, seed=1, extra=True)
    loaded = load_partial_weights(checkpoint, model, include=["encoder"])
    assert loaded.loaded == ("encoder",)
    assert loaded.initialised == ("head", "another")
    assert loaded.unused == ("head",)
    assert {name.split(".")[0] for name in changed(Model(2, seed=1, extra=True), model)} == {
        "encoder"
    }


def test_all_parts_except_the_head_are_loaded(checkpoint: Path) -> None:
    """A layer that does not fit keeps its initial weights as a whole."""
    model = Model(3, seed=1)
    loaded = load_partial_weights(checkpoint, model, exclude=["head.read", "encoder.mark"])
    assert loaded.loaded == ("encoder.blocks", "head.blocks")
    assert loaded.initialised == loaded.unused == ("encoder.mark", "head.read")
    other = Model(3, seed=1)
    assert load_partial_weights(checkpoint, other, exclude="mismatched") == loaded
    assert changed(model, other) == set()
    assert changed(Model(3, seed=1), other) == {
        name for name in model.state_dict() if name.startswith(("encoder.blocks", "head.blocks"))
    }


def test_a_mismatch_is_reported_with_the_parts_to_exclude(checkpoint: Path) -> None:
    model = Model(3, seed=1)
    message = (
        r"do not fit this model: encoder.mark is \(2, 4\) in the checkpoint, "
        r"\(3, 4\) in this model; head.read.weight is \(2, 4\) in the checkpoint, "
        r"\(3, 4\) in this model; head.read.bias is .*exclude=\[encoder.mark,head.read\], or "
        r"exclude=mismatched"
    )
    with pytest.raises(ValueError, match=message):
        load_partial_weights(checkpoint, model)
    assert changed(Model(3, seed=1), model) == set(), "the model is unchanged"
    with pytest.raises(ValueError, match=r"exclude=\[head,encoder.mark\]"):
        load_partial_weights(checkpoint, model, exclude=["head"])
    smaller = Model(2, seed=1)
    del smaller.encoder.blocks
    with pytest.raises(
        ValueError,
        match=r"encoder.blocks.0.weight is not in this model; .*exclude=\[encoder.blocks\]",
    ):
        load_partial_weights(checkpoint, smaller)


def test_unknown_parts_are_reported_with_the_nearest(checkpoint: Path) -> None:
    model = Model(2, seed=1)
    with pytest.raises(ValueError, match="the model to include 'encodr'. Did you mean 'encoder'"):
        load_partial_weights(checkpoint, model, include=["encodr"])
    with pytest.raises(ValueError, match="model to exclude 'head.raed'. Did you mean 'head.read'"):
        load_partial_weights(checkpoint, model, exclude=["head.raed"])
    with pytest.raises(ValueError, match="exclude is 'mismatch'"):
        load_partial_weights(checkpoint, model, exclude="mismatch")
    with pytest.raises(ValueError, match="No part of .* is left to load"):
        load_partial_weights(checkpoint, model, include=["head"], exclude=["head"])


def test_names_are_collapsed_into_the_fewest_parts() -> None:
    everything = ["a.b.x", "a.b.y", "a.c", "d", "ab.x"]
    assert collapsed(everything, everything) == ("a", "d", "ab")
    assert collapsed(["a.b.x", "a.b.y"], everything) == ("a.b",)
    assert collapsed(["a.b.x", "a.c", "ab.x"], everything) == ("a.b.x", "a.c", "ab")
    assert collapsed([], everything) == ()
