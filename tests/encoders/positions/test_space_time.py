"""Time as a further axis: reference rotations, shifts in space and time, missing positions."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stringline.encoders.positions.composite import SpaceTime, with_time
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.lie import LieRE
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    NoEncoding,
    Rope,
    RopeMixed,
    Rotary,
)
from stringline.encoders.vision.vit import VisionTransformer

SPACE: dict[str, Callable[[], Rotary]] = {
    "cayley": lambda: CayleyString(2, 16, 3, wavelengths=(0.04, 2.0)),
    "cayley_per_head": lambda: CayleyString(2, 16, 3, wavelengths=(0.04, 2.0), share_heads=False),
    "circulant": lambda: CirculantString(2, 16, 3, wavelengths=(0.04, 2.0), block=8),
    "rope": lambda: Rope(2, 16, 3, wavelengths=(0.04, 2.0)),
    "rope_mixed": lambda: RopeMixed(2, 16, 3, wavelengths=(0.04, 2.0)),
}


@pytest.fixture(params=SPACE)
def space(request: pytest.FixtureRequest) -> Rotary:
    made = SPACE[request.param]().double()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


@pytest.fixture
def scene() -> tuple[Tensor, Tensor, Tensor]:
    """Features (B, heads, N, 16), coordinates with time (B, N, 4), and which have a place."""
    torch.manual_seed(1)
    coordinates = torch.rand(3, 7, 4, dtype=torch.float64) - 0.5
    has_position = torch.tensor([True, True, False, True, True, False, True]).expand(3, 7)
    return torch.randn(3, 2, 7, 16, dtype=torch.float64), coordinates, has_position


def logits(
    encoding: PositionEncoding, x: Tensor, coordinates: Tensor, has_position: Tensor | None = None
) -> Tensor:
    turned = encoding.rotate(x, encoding.prepare(coordinates, has_position))
    return turned @ turned.mT


def test_rotations_are_those_of_the_dense_matrices(
    space: Rotary, scene: tuple[Tensor, Tensor, Tensor]
) -> None:
    x, coordinates, _ = scene
    encoding = SpaceTime(space, (0.5, 4.0)).double()
    dense = encoding.rotation(coordinates)
    expected = (dense @ x.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(
        logits(encoding, x, coordinates), expected @ expected.mT, rtol=0, atol=1e-9
    )
    torch.testing.assert_close(
        dense @ dense.mT, torch.eye(16, dtype=torch.float64).expand_as(dense), rtol=0, atol=1e-9
    )


def test_tokens_of_one_time_are_encoded_by_space(
    space: Rotary, scene: tuple[Tensor, Tensor, Tensor]
) -> None:
    x, coordinates, has_position = scene
    now = torch.cat((coordinates[..., :3], torch.full_like(coordinates[..., :1], -0.7)), dim=-1)
    expected = logits(space, x, coordinates[..., :3], has_position)
    torch.testing.assert_close(
        logits(SpaceTime(space, (0.5, 4.0)).double(), x, now, has_position),
        expected,
        rtol=0,
        atol=1e-9,
    )


def test_common_shifts_have_no_effect(space: Rotary, scene: tuple[Tensor, Tensor, Tensor]) -> None:
    """Places without unplaced tokens, which follow by themselves; times of all.

    A shift of one of them does change it.
    """
    x, coordinates, has_position = scene
    encoding = SpaceTime(space, (0.5, 4.0)).double()
    here = logits(encoding, x, coordinates, has_position)
    moved = coordinates + torch.where(
        has_position[..., None], torch.tensor([0.4, -1.3, 0.7, 0.0]).double(), 0.0
    )
    torch.testing.assert_close(logits(encoding, x, moved, has_position), here, rtol=0, atol=1e-9)
    later = coordinates + torch.tensor([0.0, 0.0, 0.0, 2.5]).double()
    torch.testing.assert_close(logits(encoding, x, later, has_position), here, rtol=0, atol=1e-9)
    alone = coordinates.clone()
    alone[:, 0, 3] += 0.3
    assert (logits(encoding, x, alone, has_position) - here).abs().max() > 1e-3


def test_a_token_without_a_place_keeps_its_time(
    space: Rotary, scene: tuple[Tensor, Tensor, Tensor]
) -> None:
    x, coordinates, has_position = scene
    encoding = SpaceTime(space, (0.5, 4.0)).double()
    middle = coordinates[:, has_position[0], :3].mean(dim=1, keepdim=True)
    by_hand = torch.where(has_position[..., None], coordinates[..., :3], middle)
    expected = logits(encoding, x, torch.cat((by_hand, coordinates[..., 3:]), dim=-1))
    lost = coordinates.clone()
    lost[..., :3] = torch.where(has_position[..., None], lost[..., :3], torch.nan)
    torch.testing.assert_close(logits(encoding, x, lost, has_position), expected, rtol=0, atol=1e-9)
    elsewhere = torch.full((3, 4), 0.2, dtype=torch.float64)
    unplaced = logits(encoding, x, lost, torch.zeros_like(has_position))
    torch.testing.assert_close(
        unplaced,
        logits(encoding, x, torch.cat((0 * by_hand, lost[..., 3:]), dim=-1)),
        rtol=0,
        atol=1e-9,
    )
    assert encoding.prepare(lost, torch.zeros_like(has_position), elsewhere) is not None


def test_time_has_separate_wavelengths() -> None:
    """All of its wavelengths, and the fastest of space are the slowest in time."""
    encoding = SpaceTime(RopeMixed(2, 16, 3, wavelengths=(0.04, 2.0)), (0.5, 4.0))
    omega = encoding.frequencies().detach()[0]
    assert 2 * math.pi / float(omega[3].max()) == pytest.approx(0.5, rel=1e-5)
    assert 2 * math.pi / float(omega[3].min()) == pytest.approx(4.0, rel=1e-5)
    assert omega[:3].norm(dim=0).argsort().tolist() == omega[3].argsort(descending=True).tolist()


def test_time_is_learned_where_space_is() -> None:
    learned = SpaceTime(SPACE["cayley"](), (0.5, 4.0))
    fixed = SpaceTime(SPACE["rope"](), (0.5, 4.0))
    assert "scaled" in dict(learned.named_parameters())
    assert learned.no_weight_decay() == {name for name, _ in learned.named_parameters()}
    assert not list(fixed.parameters())
    assert "scaled" in fixed.state_dict()
    assert (learned.zero_().frequencies() == 0).all()
    assert (learned.redrawn(3).frequencies()[:, 3] > 0).all()


@pytest.mark.parametrize("share_layers", [True, False])
def test_folding_and_a_constant_basis_have_no_effect(
    space: Rotary, scene: tuple[Tensor, Tensor, Tensor], share_layers: bool
) -> None:
    """In a network with registers, with tokens without a place, at different times."""
    _, coordinates, has_position = scene
    torch.manual_seed(2)
    network = VisionTransformer(
        SpaceTime(space, (0.5, 4.0)), 32, 2, registers=2, share_layers=share_layers, values=True
    ).double()
    x = torch.randn(3, 7, 32, dtype=torch.float64)
    before = network(x, coordinates, has_position)
    assert (
        network(x, coordinates * torch.tensor([1.0, 1, 1, 3]).double(), has_position) - before
    ).abs().max() > 1e-4
    network.fold_()
    torch.testing.assert_close(network(x, coordinates, has_position), before, rtol=0, atol=1e-9)
    constant = SpaceTime(space, (0.5, 4.0)).double().without_constant_basis()
    assert (constant.basis() is None) == (not isinstance(space, CayleyString))
    torch.testing.assert_close(
        constant.frequencies(), SpaceTime(space, (0.5, 4.0)).double().frequencies(), rtol=0, atol=0
    )


def test_encodings_without_frequencies_are_rejected() -> None:
    with pytest.raises(ValueError, match="Time cannot be added to LieRE"):
        with_time(LieRE(2, 16, 3), (0.5, 4.0))
    assert with_time(NoEncoding(2, 16, 3), (0.5, 4.0)).axes == 4
    with pytest.raises(ValueError, match=r"wavelengths is \(4.0, 0.5\)"):
        with_time(SPACE["rope"](), (4.0, 0.5))
