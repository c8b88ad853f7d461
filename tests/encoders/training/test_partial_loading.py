"""Parts of a checkpoint as the start of another model."""

from pathlib import Path

import pytest
import torch
from torch import nn

from stringline.encoders.training.checkpoint import save_checkpoint
from stringline.encoders.training.partial_loading import collapsed, take_weights


class Model(nn.Module):
    """An encoder with a mark, and a head of some width."""

    def __init__(self, actions: int, seed: int, extra: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.memory = nn.Module()
        self.memory.blocks = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.memory.mark = nn.Parameter(torch.randn(actions, 4))
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


def test_everything_is_taken_where_everything_fits(checkpoint: Path) -> None:
    model = Model(2, seed=1)
    taken = take_weights(checkpoint, model)
    assert (taken.taken, taken.fresh, taken.left) == (("memory", "head"), (), ())
    assert str(taken) == "taken: memory, head; starting anew: nothing; not used: nothing"
    assert all(
        torch.equal(one, other)
        for one, other in zip(model.parameters(), Model(2, seed=0).parameters(), strict=True)
    )


def test_the_encoder_alone(checkpoint: Path) -> None:
    model = Model(2, seed=1, extra=True)
    taken = take_weights(checkpoint, model, take=["memory"])
    assert (taken.taken, taken.fresh, taken.left) == (("memory",), ("head", "another"), ("head",))
    assert {name.split(".")[0] for name in changed(Model(2, seed=1, extra=True), model)} == {
        "memory"
    }


def test_everything_but_the_head(checkpoint: Path) -> None:
    """A layer that does not fit starts anew as a whole, also when its name stands for it."""
    model = Model(3, seed=1)
    taken = take_weights(checkpoint, model, leave=["head.read", "memory.mark"])
    assert taken.taken == ("memory.blocks", "head.blocks")
    assert taken.fresh == taken.left == ("memory.mark", "head.read")
    other = Model(3, seed=1)
    assert take_weights(checkpoint, other, leave="misfits") == taken
    assert changed(model, other) == set()
    assert changed(Model(3, seed=1), other) == {
        name for name in model.state_dict() if name.startswith(("memory.blocks", "head.blocks"))
    }


def test_what_does_not_fit_is_named_with_what_to_do(checkpoint: Path) -> None:
    model = Model(3, seed=1)
    message = (
        r"do not fit this model: memory.mark is \(2, 4\) there and \(3, 4\) here; "
        r"head.read.weight is \(2, 4\) there and "
        r"\(3, 4\) here; head.read.bias is .*leave=\[memory.mark,head.read\], or leave=misfits"
    )
    with pytest.raises(ValueError, match=message):
        take_weights(checkpoint, model)
    assert changed(Model(3, seed=1), model) == set(), "nothing is taken by halves"
    with pytest.raises(ValueError, match=r"leave=\[head,memory.mark\]"):
        take_weights(checkpoint, model, leave=["head"])
    smaller = Model(2, seed=1)
    del smaller.memory.blocks
    with pytest.raises(
        ValueError, match=r"memory.blocks.0.weight is not in this model; .*leave=\[memory.blocks\]"
    ):
        take_weights(checkpoint, smaller)


def test_unknown_parts_are_answered_with_the_nearest(checkpoint: Path) -> None:
    model = Model(2, seed=1)
    with pytest.raises(
        ValueError, match=r"no part of the model to take 'memori'. Did you mean 'memory'"
    ):
        take_weights(checkpoint, model, take=["memori"])
    with pytest.raises(
        ValueError, match=r"no part of the model to leave 'head.raed'. Did you mean 'head.read'"
    ):
        take_weights(checkpoint, model, leave=["head.raed"])
    with pytest.raises(
        ValueError, match=r"leave is 'misfit'; allowed: a list of parts, or 'misfits'"
    ):
        take_weights(checkpoint, model, leave="misfit")
    with pytest.raises(ValueError, match="Nothing is left to take"):
        take_weights(checkpoint, model, take=["head"], leave=["head"])


def test_names_are_collapsed_into_the_fewest_parts() -> None:
    everything = ["a.b.x", "a.b.y", "a.c", "d", "ab.x"]
    assert collapsed(everything, everything) == ("a", "d", "ab")
    assert collapsed(["a.b.x", "a.b.y"], everything) == ("a.b",)
    assert collapsed(["a.b.x", "a.c", "ab.x"], everything) == ("a.b.x", "a.c", "ab")
    assert collapsed([], everything) == ()
