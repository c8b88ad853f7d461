"""Tokens of voxels: independent of batches, of the order of points, and of where the scene is."""

from typing import Any

import pytest
import torch
from torch import Tensor

from stringline.encoders.vision.point_tokens import PointTokens, VoxelSettings, VoxelTokens

LOW, HIGH = (-0.4, -0.4, 0.0), (0.4, 0.4, 0.4)
SIZE = 0.025


def network(tokens: int = 64, points: int = 8) -> VoxelTokens:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    settings = VoxelSettings(tokens=tokens, size_m=SIZE, points=points)
    return VoxelTokens(16, LOW, HIGH, settings).double().eval()


def scene(batch: int = 3, count: int = 200, *, voxels: int = 40) -> dict[str, Tensor]:
    """Returns clouds with a few points in the middle of each of some voxels."""
    generator = torch.Generator().manual_seed(1)
    cells = torch.stack(
        [torch.randperm(24 * 24 * 12, generator=generator)[:voxels] for _ in range(batch)]
    )
    cells = torch.stack((cells // 288 - 12, cells // 12 % 24 - 12, cells % 12), -1)
    chosen = cells[:, torch.arange(count) % voxels].double()
    inside = 0.2 + 0.6 * torch.rand(batch, count, 3, generator=generator).double()
    low = torch.tensor(LOW).double() - 0.15
    first = torch.round(-low / SIZE) * SIZE + low  # A border between voxels near the origin.
    first[2] = 0.0
    return {
        "points": first + (chosen + inside) * SIZE,
        "colours": torch.randint(0, 256, (batch, count, 3), generator=generator).byte(),
        "count": torch.full((batch,), count),
        "support": torch.zeros(batch).double(),
    }


def sorted_tokens(found: PointTokens, shift: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Returns places and features of the tokens of the first cloud, in an order of their places."""
    there = found.present[0]
    place = (found.place[0] - shift)[there]
    order = torch.argsort(place.round(decimals=6) @ torch.tensor([1e4, 1e2, 1.0]).double())
    return place[order], found.features[0][there][order]


def test_tokens_are_independent_of_the_batch() -> None:
    embed = network(20)
    clouds = scene()
    whole = embed(**clouds)
    for row in range(3):
        alone = embed(**{key: value[row : row + 1] for key, value in clouds.items()})
        torch.testing.assert_close(alone.features[0], whole.features[row])
        torch.testing.assert_close(alone.place[0], whole.place[row])


def test_the_drawn_voxels_are_independent_of_the_order_of_the_points() -> None:
    """Where a voxel has more points than are read, which are read depends on their order."""
    embed = network(20)
    clouds = scene(1)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(2))
    mixed = clouds | {key: clouds[key][:, order] for key in ("points", "colours")}
    first, second = embed(**clouds), embed(**mixed)
    assert torch.cdist(first.place[0], second.place[0]).min(1).values.max() < 0.6 * SIZE
    single = clouds | {key: clouds[key][:, :40] for key in ("points", "colours")}
    single["count"] = torch.tensor([40])  # One in each voxel.
    turned = single | {key: single[key].flip(1) for key in ("points", "colours")}
    expected = sorted_tokens(embed(**single))
    for part, other in zip(sorted_tokens(embed(**turned)), expected, strict=True):
        torch.testing.assert_close(part, other)


def test_a_shift_by_whole_voxels_shifts_places_and_keeps_features() -> None:
    """As long as all voxels are drawn."""
    embed = network(64)
    clouds = scene(1)
    shift = SIZE * torch.tensor([3.0, -2.0, 2.0]).double()
    moved = clouds | {
        "points": clouds["points"] + shift,
        "support": clouds["support"] + shift[2],
    }
    place, features = sorted_tokens(embed(**clouds))
    shifted_place, shifted = sorted_tokens(embed(**moved), shift)
    assert len(place) == 40
    torch.testing.assert_close(shifted_place, place)
    torch.testing.assert_close(shifted, features)


@pytest.mark.parametrize(("tokens", "there"), [(64, 40), (40, 40), (10, 10)])
def test_as_many_tokens_as_voxels_up_to_the_number(tokens: int, there: int) -> None:
    found = network(tokens)(**scene())
    assert found.features.shape == (3, tokens, 16)
    assert (found.present.sum(1) == there).all()
    assert found.features.isfinite().all()


def test_each_voxel_is_drawn_once_and_lies_where_its_points_are() -> None:
    clouds = scene()
    found = network(20)(**clouds)
    for row in range(3):
        gaps = torch.cdist(found.place[row], found.place[row]) + torch.eye(20)
        assert gaps.min() > 1e-3
        near = torch.cdist(found.place[row], clouds["points"][row]).min(1).values
        assert near.max() < SIZE


def test_points_behind_the_count_and_outside_are_ignored() -> None:
    embed = network()
    clouds = scene()
    clouds["count"] = torch.tensor([200, 100, 0])
    found = embed(**clouds)
    wild = dict(clouds) | {"points": clouds["points"].clone()}
    wild["points"][1, 100:] = torch.nan
    wild["points"][2] = 50.0
    other = embed(**wild)
    torch.testing.assert_close(other.features[:2], found.features[:2])
    assert found.present[2].sum() == 0
    assert other.features.isfinite().all()


def test_the_draw_is_a_function_of_its_number() -> None:
    embed = network(10)
    clouds = scene()
    first, again, second = (embed(**clouds, draw=torch.full((3,), number)) for number in (0, 0, 1))
    assert torch.equal(first.place, again.place)
    assert torch.equal(embed(**clouds).place, first.place)
    assert not torch.equal(first.place, second.place)


def test_rare_things_are_drawn_more_often() -> None:
    """Of 20 voxels in one colour and one in another at the same height, the one is drawn more."""
    low = torch.tensor(LOW).double() - 0.15
    first = torch.round(-low / SIZE) * SIZE + low
    cells = torch.stack((torch.arange(21) - 10, torch.zeros(21), torch.full((21,), 3)), -1)
    points = (first + (cells + 0.5) * SIZE)[None]
    colours = torch.zeros(1, 21, 3).byte()
    colours[0, 20, 0] = 255
    embed = network(3)
    embed.low[2] = 0.0
    batch = {
        "points": points,
        "colours": colours,
        "count": torch.tensor([21]),
        "support": torch.zeros(1).double(),
    }
    drawn = sum(
        bool((embed(**batch, draw=torch.tensor([n])).place[0, :, 0] > 0.24).any())
        for n in range(60)
    )
    assert drawn > 2 * 60 * 3 / 21


def test_gradients_are_those_of_finite_differences() -> None:
    embed = network(6, 4)
    clouds = scene(1, 24, voxels=6)

    def function(weight: Tensor) -> Tensor:
        found = torch.func.functional_call(embed, {"point.0.weight": weight}, kwargs=clouds)
        assert isinstance(found, PointTokens)
        return found.features.sum(dim=(0, 1))[:3]

    weight = embed.get_parameter("point.0.weight").detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(function, weight, fast_mode=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens", 0), ("size_m", 0.0), ("points", 1.5), ("rarity", -1.0), ("support_weight", 0.0)],
)
def test_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        VoxelSettings(**{name: value})
