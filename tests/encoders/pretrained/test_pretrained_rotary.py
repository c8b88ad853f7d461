from collections.abc import Callable
from functools import partial

import pytest
import torch
from tests.encoders.pretrained.conftest import Features, Images, Make
from torch import nn

from stringline.encoders.coordinates.coordinates import GridPlaces, PatchDepthPlaces
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.encoding import RotaryPlaces
from stringline.encoders.positions.lie import LieRE
from stringline.encoders.positions.rotary import CayleyString, CirculantString, RopeMixed, Rotary
from stringline.encoders.pretrained.timm_models import timm_model
from stringline.encoders.pretrained.vision_transformer import (
    FilledDepthPlaces,
    PretrainedVisionTransformer,
    continued,
    in_cells,
    own_frequencies,
)


def half_seen(height: int, width: int) -> View:
    """Returns a view whose left third is without depth."""
    depth = torch.randint(500, 1500, (2, height, width), generator=torch.Generator().manual_seed(0))
    depth[:, :, : width // 3] = 0
    return View(height=height, width=width, depth=depth.to(torch.uint16))


@pytest.mark.parametrize("grid", [8, (7, 9)])
def test_phases_are_those_of_timm(grid: int | tuple[int, int], make: Make) -> None:
    model = make("dinov3")
    omega = own_frequencies(model)
    assert omega is not None
    coordinates = GridPlaces(grid)
    encoding = continued(in_cells(omega, coordinates), None, heads=2).double()
    uv, _ = coordinates.patches(View(height=6 * 16, width=10 * 16), 16, 1, torch.device("cpu"))
    rows, columns = coordinates.grid
    places = encoding.prepare(uv.double() - torch.tensor([columns / 2, rows / 2]))
    assert isinstance(places, RotaryPlaces)
    assert model.rope is not None
    sin, cos = model.rope.get_embed((6, 10)).chunk(2, dim=-1)  # type: ignore[operator]
    planes = encoding.head_dim // 2
    for ours, theirs in ((places.sin[0, 0], sin), (places.cos[0, 0], cos)):
        torch.testing.assert_close(ours, theirs[:, :planes].double(), rtol=0, atol=2e-6)
        torch.testing.assert_close(ours, theirs[:, planes:].double(), rtol=0, atol=2e-6)


def test_depth_starts_without_effect_and_learns(
    make: Make, timms_own: Features, images: Images
) -> None:
    seen, view = images(96, 144), half_seen(96, 144)
    expected = timms_own(make("dinov3"), seen)
    encode = PretrainedVisionTransformer(make("dinov3"), FilledDepthPlaces()).double()
    encoding = encode.encodings[0]
    assert isinstance(encoding, Rotary)
    start = encoding.frequencies().detach().clone()
    assert start.shape == (1, 3, 8)
    assert start[0, 2].abs().max() == 0
    (
        encode(seen, view).features
        * torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    ).sum().backward()
    torch.optim.SGD(encode.encodings[0].parameters(), lr=1e-2).step()
    assert ((encoding.frequencies() - start).abs().amax(dim=(0, 2)) > 0).all()
    assert (encode(seen, view).features - expected).abs().max() > 1e-3


def test_frequencies_may_be_continued_without_a_basis(make: Make, images: Images) -> None:
    encode = PretrainedVisionTransformer(make("dinov3"), GridPlaces()).double()
    for encoding in encode.encodings:
        encoding.requires_grad_(False)
    encode(images(96, 144)).features.square().sum().backward()
    learned = {name for name, parameter in encode.named_parameters() if parameter.grad is not None}
    assert not any(name.startswith("encodings") for name in learned)
    assert "blocks.0.attention.qkv.weight" in learned


def test_patches_keep_their_places_where_holes_are_filled(
    make: Make, timms_own: Features, images: Images
) -> None:
    seen, view = images(96, 144), half_seen(96, 144)
    expected = timms_own(make("dinov3"), seen)
    filled = PretrainedVisionTransformer(make("dinov3"), FilledDepthPlaces()).double()
    torch.testing.assert_close(filled(seen, view).features, expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(
        filled(seen).features, expected, rtol=0, atol=2e-6
    )  # An image without depth.
    unfilled = PretrainedVisionTransformer(make("dinov3"), PatchDepthPlaces()).double()
    assert (unfilled(seen, view).features - expected).abs().max() > 1e-2


def test_patches_without_depth_are_at_the_mean_depth_of_the_others() -> None:
    view = half_seen(96, 144)
    coordinates = FilledDepthPlaces(units_per_metre=2.0)
    places, has_position = coordinates.patches(view, 16, 2, torch.device("cpu"))
    theirs, known = PatchDepthPlaces(units_per_metre=2.0).patches(view, 16, 2, torch.device("cpu"))
    assert has_position.all()
    assert not known.all()
    torch.testing.assert_close(places[known], theirs[known], rtol=0, atol=0)
    torch.testing.assert_close(places[..., :2], theirs[..., :2], rtol=0, atol=0)
    for example in range(2):
        z = places[example, ~known[example], 2]
        torch.testing.assert_close(z, theirs[example, known[example], 2].mean().expand_as(z))


@pytest.mark.parametrize(
    "factory", [partial(CayleyString, wavelengths=(1.0, 20.0)), partial(RopeMixed, theta=100.0)]
)
def test_other_encodings_continue_the_frequencies(
    factory: Callable[..., CayleyString | RopeMixed],
    make: Make,
    timms_own: Features,
    images: Images,
) -> None:
    seen = images(96, 144)
    encode = PretrainedVisionTransformer(
        make("dinov3"), GridPlaces(), factory, share_layers=False
    ).double()
    torch.testing.assert_close(
        encode(seen).features, timms_own(make("dinov3"), seen), rtol=0, atol=2e-6
    )
    encode.fold_()
    torch.testing.assert_close(
        encode(seen).features, timms_own(make("dinov3"), seen), rtol=0, atol=2e-6
    )


def test_unsuitable_encodings_are_rejected(make: Make) -> None:
    allowed = (
        r"cannot continue .*allowed: `MixedFrequencies` in a basis that starts at the identity"
    )
    for factory, name in (
        (LieRE, "LieRE"),
        (partial(CirculantString, wavelengths=(1.0, 20.0)), "CirculantString"),
    ):
        with pytest.raises(ValueError, match=f"{name} {allowed}"):
            PretrainedVisionTransformer(make("dinov3"), GridPlaces(), factory)
    small = {"depth": 1, "embed_dim": 32, "num_heads": 2}
    axial = timm_model("vit_small_patch16_rope_224", pretrained=False, options=small)
    with pytest.raises(ValueError, match="rotary encoding RotaryEmbeddingCat"):
        own_frequencies(axial)
    jittered = timm_model(
        "vit_small_patch16_dinov3", pretrained=False, options=small | {"rope_jitter_coords": 1.2}
    )
    with pytest.raises(
        ValueError, match="rotary encoding RotaryEmbeddingDinoV3 with aug_active True; allowed"
    ):
        own_frequencies(jittered)
    assert own_frequencies(make("clip")) is None
    assert isinstance(axial, nn.Module)
