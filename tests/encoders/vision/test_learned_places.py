"""Places finer than patches: a learned mean of the places of cells."""

from functools import partial

import pytest
import torch
from tests.encoders.conftest import Draw, rotary
from tests.encoders.vision.rgbd_network import RgbdVisionTransformer
from torch import Tensor

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import (
    Coordinates,
    GridPlaces,
    MetricPlaces,
    RayPlaces,
)
from stringline.encoders.vision.patches import ConvolutionalStem, EmbeddingFactory, PatchProjection
from stringline.encoders.vision.rgbd import LearnedPlaces, RgbdTokens
from stringline.encoders.vision.vit import VisionTransformer

CAMERA = Camera("overhead", 32, 48, depth="simulated")
STEM = partial(ConvolutionalStem, width=8)


def _learned(*, moved: bool = True) -> LearnedPlaces:
    """Returns two patches' worth of parameters; moved: away from their initial values."""
    torch.manual_seed(0)
    learned = LearnedPlaces(5).double()
    if moved:
        torch.nn.init.normal_(learned.score.weight)
    return learned


def _cells(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Returns features, places and existence of 2 x 4 cells: two patches of 2 x 2."""
    known = torch.ones(1, 8, dtype=torch.bool)
    known[0, 5] = False
    return draw(1, 5, 2, 4), 0.05 * draw(1, 8, 3), known


def test_a_patch_starts_at_what_is_highest_in_it(draw: Draw) -> None:
    maps, places, known = _cells(draw)
    places[..., 2] = torch.tensor([0, 0, 0.3, 0, 0, 0.5, 0, 0])  # Cell 5 does not count.
    got, has_position, spread = _learned(moved=False)(maps, places, known, None, 2)
    assert has_position.all()
    assert spread is None
    torch.testing.assert_close(got[0, 1], places[0, 2], rtol=0, atol=1e-6)
    torch.testing.assert_close(got[0, 0], places[0, [0, 1, 4]].mean(dim=0))


def test_weights_depend_on_features_and_not_on_shifts(draw: Draw) -> None:
    maps, places, known = _cells(draw)
    learned = _learned()
    got = learned(maps, places, known, None, 2)[0]
    assert (learned(-maps, places, known, None, 2)[0] - got).abs().max() > 1e-4
    torch.testing.assert_close(learned(maps, places + 3.0, known, None, 2)[0], got + 3.0)


def test_the_spread_is_the_mean_of_those_of_the_cells(draw: Draw) -> None:
    maps, places, known = _cells(draw)
    spread = torch.tensor([0.0, 0.3, 0.1]).double().expand(1, 8, 3)
    torch.testing.assert_close(_learned()(maps, places, known, spread, 2)[2], spread[:, :2])


def test_a_patch_without_depth_has_no_position_and_no_gradient(draw: Draw) -> None:
    maps, places, known = _cells(draw)
    places[:, [0, 1, 4, 5]] = torch.nan
    known[:, [0, 1, 4, 5]] = False
    learned = _learned()
    got, has_position, _ = learned(maps.requires_grad_(), places, known, None, 2)
    assert has_position.tolist() == [[False, True]]
    got.square().sum().backward()
    assert maps.grad is not None
    assert maps.grad.isfinite().all()
    assert not maps.grad[..., :2].any()
    assert maps.grad[..., 2:].any()


def test_gradients_through_the_encoding_agree_with_finite_differences(draw: Draw) -> None:
    maps, places, known = _cells(draw)
    learned, encoding = _learned(), rotary("cayley")
    x = draw(1, encoding.heads, 2, encoding.head_dim)
    parameters = dict(learned.named_parameters())

    def rotated(maps: Tensor, places: Tensor, spread: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=True))
        found = torch.func.functional_call(learned, given, (maps, places, known, spread, 2))
        return encoding.rotate(x, encoding.prepare(*found[:2], spread=found[2]))

    spread = 0.1 * draw(1, 8, 3)
    inputs = [each.requires_grad_() for each in (maps, places, spread)]
    assert torch.autograd.gradcheck(rotated, (*inputs, *parameters.values()), fast_mode=True)


@pytest.fixture
def observation() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    depth = torch.randint(500, 900, (2, 32, 48), generator=generator)
    depth[0, :16, :20] = 0
    K = torch.tensor([[60.0, 0, 24], [0, 60, 16], [0, 0, 1]])
    return {
        "rgb/overhead": torch.randint(0, 256, (2, 32, 48, 3), generator=generator).to(torch.uint8),
        "depth/overhead": depth.to(torch.uint16),
        "intrinsics/overhead": K.expand(2, 3, 3),
        "T_base_camera/overhead": torch.diag(torch.tensor([1.0, -1, -1, 1])).expand(2, 4, 4),
    }


def _network(places: Coordinates, embedding: EmbeddingFactory = STEM) -> RgbdVisionTransformer:
    torch.manual_seed(0)
    tokenise = RgbdTokens((CAMERA,), places, 32, embedding=embedding, learned_places=True)
    return RgbdVisionTransformer(tokenise, VisionTransformer(rotary("cayley").float(), 32, depth=1))


@pytest.mark.parametrize("places", [MetricPlaces(), RayPlaces(spread=0.2)])
def test_a_network_learns_where_patches_are(
    places: Coordinates, observation: dict[str, Tensor]
) -> None:
    network = _network(places)
    network(observation).features.square().sum().backward()
    assert network.tokenise.learned is not None
    gradient = network.tokenise.learned.score.weight.grad
    assert gradient is not None
    assert gradient.abs().max() > 0
    plain = RgbdTokens((CAMERA,), places, 32, embedding=STEM)
    plain.load_state_dict(network.tokenise.state_dict(), strict=False)
    fine, coarse = network.tokenise(observation), plain(observation)
    assert torch.equal(fine.features, coarse.features)
    assert torch.equal(fine.has_position, coarse.has_position)
    distance = (fine.coordinates - coarse.coordinates)[coarse.has_position].norm(dim=-1)
    assert 0.005 < distance.mean() < 0.3  # Within the patch, and not at its centre.


@pytest.mark.slow
def test_it_compiles_and_exports(draw: Draw) -> None:
    torch.compiler.reset()
    maps, places, known = _cells(draw)
    learned, inputs = _learned(), (maps, places, known, 0.1 * places, 2)
    expected = learned(*inputs)
    compiled = torch.compile(learned, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), expected)
    torch.testing.assert_close(torch.export.export(learned, inputs).module()(*inputs), expected)
    torch.compiler.reset()


def test_patches_of_8_pixels(observation: dict[str, Tensor]) -> None:
    tokens = _network(MetricPlaces(), partial(STEM, patch=8)).tokenise(observation)
    assert tokens.features.shape == (2, 24, 32)
    with pytest.raises(ValueError, match="patch is 4; allowed: 16 and 8"):
        ConvolutionalStem(32, patch=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("places", "embedding", "got"),
    [
        (GridPlaces(), STEM, "ConvolutionalStem and GridPlaces"),
        (MetricPlaces(), PatchProjection, "PatchProjection and MetricPlaces"),
    ],
)
def test_errors_say_what_is_allowed(
    places: Coordinates, embedding: EmbeddingFactory, got: str
) -> None:
    with pytest.raises(ValueError, match=f"learned_places got {got}; allowed: ConvolutionalStem"):
        _network(places, embedding)
