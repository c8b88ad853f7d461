from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.encoders.pretrained.conftest import Features, Images, Make
from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import GridPlaces, MetricPlaces
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.absolute import LearnedEncoding
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.positions.lie import LieRE
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    NoEncoding,
    RopeMixed,
    Rotary,
    TensorProductString,
)
from stringline.encoders.pretrained.timm_models import TimmModel, timm_model
from stringline.encoders.pretrained.vision_transformer import (
    FilledDepthPlaces,
    PretrainedVisionTransformer,
)

Pair = Callable[[str], tuple[TimmModel, PretrainedVisionTransformer]]

CAYLEY = partial(CayleyString, wavelengths=(0.1, 2.0))
FACTORIES: dict[str, EncodingFactory] = {
    "cayley": CAYLEY,
    "circulant": partial(CirculantString, wavelengths=(0.1, 2.0)),
    "mixed": partial(RopeMixed, wavelengths=(0.1, 2.0)),
    "mixed_per_head": partial(RopeMixed, wavelengths=(0.1, 2.0), share_heads=False),
    "lie": LieRE,
    "learned": partial(
        LearnedEncoding, cells=(3, 3, 3), low=(-1.0, -1.0, 0.0), high=(1.0, 1.0, 2.0)
    ),
}


def view_of(images: Tensor) -> View:
    """Returns a view with depth 0.5 to 1.5 m, whose first 32 columns are a hole."""
    batch, height, width, _ = images.shape
    generator = torch.Generator().manual_seed(2)
    depth = torch.randint(500, 1500, (batch, height, width), generator=generator)
    depth[:, :, :32] = 0
    intrinsics = torch.tensor(
        [[width, 0.0, width / 2], [0.0, width, height / 2], [0.0, 0.0, 1.0]], dtype=torch.float64
    )
    return View(
        height=height,
        width=width,
        depth=depth.to(torch.uint16),
        intrinsics=intrinsics.expand(batch, 3, 3),
        T_base_camera=torch.eye(4, dtype=torch.float64).expand(batch, 4, 4),
    )


@pytest.mark.parametrize("size", ["native", "other"])
def test_outputs_are_those_of_timm(
    family: str, size: str, pair: Pair, timms_own: Features, images: Images
) -> None:
    theirs, ours = pair(family)
    height, width = (
        theirs.patch_embed.img_size if size == "native" else (6 * ours.patch, 9 * ours.patch)
    )
    seen = images(height, width)
    turns = "dinov3" in family  # Then both round phases to float32, in different ways.
    for kind, closeness in {torch.float32: 1e-5, torch.float64: 2e-6 if turns else 1e-12}.items():
        assert isinstance(theirs, nn.Module)
        expected = timms_own(theirs.to(kind), seen)
        tokens = ours.to(kind)(seen, view_of(seen))
        torch.testing.assert_close(tokens.features, expected, rtol=0, atol=closeness)
        assert expected.std() > 0.3
        assert tokens.has_position.sum(dim=1).tolist() == [expected.shape[1] - ours.prefix] * 2
        assert not tokens.has_position[:, : ours.prefix].any()


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("kind", FACTORIES)
def test_every_encoding_starts_without_effect_and_learns(
    kind: str, values: bool, make: Make, timms_own: Features, images: Images
) -> None:
    seen = images(64, 96)
    expected = timms_own(make("siglip"), seen)
    encode = PretrainedVisionTransformer(
        make("siglip"), MetricPlaces(), FACTORIES[kind], values=values
    ).double()
    found = encode(seen, view_of(seen)).features
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    (found * torch.randn(found.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    with torch.no_grad():
        for parameter in encode.encodings[0].parameters():
            assert parameter.grad is not None
            parameter -= parameter.grad / (1e-9 + parameter.grad.abs().max())
    assert (encode(seen, view_of(seen)).features - expected).abs().max() > 1e-3


def test_one_step_of_training_moves_all_frequencies(make: Make, images: Images) -> None:
    for share_layers in (True, False):
        encode = PretrainedVisionTransformer(
            make("dinov2"), MetricPlaces(), CAYLEY, share_layers=share_layers
        ).double()
        seen = images(56, 84)
        optimizer = torch.optim.SGD(encode.parameters(), lr=1e-3)
        encode(seen, view_of(seen)).features.square().mean().backward()
        optimizer.step()
        assert len(encode.encodings) == (1 if share_layers else 2)
        for encoding in encode.encodings:
            assert isinstance(encoding, Rotary)
            assert (encoding.frequencies().abs().amax(dim=(0, 2)) > 0).all()
    assert not torch.equal(
        *(encoding.frequencies() for encoding in encode.encodings if isinstance(encoding, Rotary))
    )


def moved(encode: PretrainedVisionTransformer) -> PretrainedVisionTransformer:
    """Returns the network in float64 and evaluation mode, with changed encodings."""
    generator = torch.Generator().manual_seed(4)
    encode.double().eval()
    with torch.no_grad():
        for parameter in encode.encodings[0].parameters():
            parameter += 0.3 * torch.randn(
                parameter.shape, dtype=parameter.dtype, generator=generator
            )
    return encode


@pytest.mark.parametrize("values", [False, True])
def test_folding_changes_only_the_weights(values: bool, make: Make, images: Images) -> None:
    seen = images(64, 96)
    encode = moved(
        PretrainedVisionTransformer(make("siglip"), MetricPlaces(), CAYLEY, values=values)
    )
    before = encode(seen, view_of(seen)).features
    encode.fold_()
    torch.testing.assert_close(encode(seen, view_of(seen)).features, before, rtol=0, atol=1e-6)
    assert encode.encodings[0].basis() is None
    assert not list(encode.encodings[0].parameters())


def test_a_model_that_normalises_queries_and_keys_cannot_be_folded(
    make: Make, images: Images
) -> None:
    seen = images(64, 96)
    encode = moved(PretrainedVisionTransformer(make("qk_norm"), MetricPlaces(), CAYLEY))
    before = encode(seen, view_of(seen)).features
    with pytest.raises(ValueError, match="LayerNorm.* does not commute with a basis"):
        encode.fold_()
    torch.testing.assert_close(encode(seen, view_of(seen)).features, before, rtol=0, atol=0)


def test_a_common_shift_has_no_effect_on_a_trained_network(make: Make, images: Images) -> None:
    encode = moved(
        PretrainedVisionTransformer(make("dinov2_registers"), MetricPlaces(), CAYLEY, values=True)
    )
    seen = images(56, 84)
    view = view_of(seen)
    assert view.T_base_camera is not None
    there = view.T_base_camera.clone()
    there[:, :3, 3] = torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)
    torch.testing.assert_close(
        encode(seen, replace(view, T_base_camera=there)).features,
        encode(seen, view).features,
        rtol=0,
        atol=1e-9,
    )


def test_a_model_of_a_fixed_size_rejects_other_sizes(images: Images) -> None:
    options = {"depth": 1, "embed_dim": 32, "num_heads": 2, "dynamic_img_size": False}
    encode = PretrainedVisionTransformer.load(
        "vit_base_patch16_siglip_224",
        GridPlaces(),
        partial(RopeMixed, wavelengths=(2.0, 20.0)),
        pretrained=False,
        options=options,
    )
    assert encode(images(224, 224)).features.shape == (2, 196, 32)
    with pytest.raises(ValueError, match=r"Images are 64x96; allowed: \(224, 224\)"):
        encode(images(64, 96))


def test_invalid_models_and_images_are_rejected(make: Make, images: Images) -> None:
    with pytest.raises(ValueError, match="has no rotary encoding of its own"):
        PretrainedVisionTransformer(make("siglip"), MetricPlaces())
    with pytest.raises(ValueError, match="TensorProductString cannot start at zero"):
        PretrainedVisionTransformer(
            make("siglip"), MetricPlaces(), partial(TensorProductString, wavelengths=(0.1, 2.0))
        )
    with pytest.raises(ValueError, match="rotates queries and keys, but not values"):
        PretrainedVisionTransformer(make("dinov3"), FilledDepthPlaces(), values=True)
    with pytest.raises(ValueError, match="rotates by positions in the image"):
        PretrainedVisionTransformer(make("dinov3"), MetricPlaces())
    dropping = timm_model(
        "vit_base_patch16_siglip_224",
        pretrained=False,
        options={"depth": 1, "patch_drop_rate": 0.5},
    )
    with pytest.raises(
        ValueError, match="drops patches, so the positions of its tokens are unknown"
    ):
        PretrainedVisionTransformer(dropping, MetricPlaces(), NoEncoding)
    oblong = timm_model(
        "vit_base_patch16_siglip_224", pretrained=False, options={"depth": 1, "patch_size": (16, 8)}
    )
    with pytest.raises(ValueError, match="patches of 16x8 pixels; allowed: squares"):
        PretrainedVisionTransformer(oblong, MetricPlaces(), NoEncoding)
    encode = PretrainedVisionTransformer(make("siglip"), MetricPlaces(), NoEncoding).double()
    with pytest.raises(ValueError, match=r"shape \(2, 60, 96, 3\)"):
        encode(images(60, 96))
    with pytest.raises(ValueError, match="Images are 64x96 and the view 32x96"):
        encode(images(64, 96), View(height=32, width=96))


def test_positions_have_no_weight_decay(make: Make) -> None:
    encode = PretrainedVisionTransformer(make("clip"), MetricPlaces(), CAYLEY)
    names = {name for name, _ in encode.named_parameters()}
    assert encode.no_weight_decay() <= names
    assert "unplaced_mark" in encode.no_weight_decay()
    assert encode.rest.no_weight_decay() >= {"pos_embed", "cls_token"}  # type: ignore[attr-defined]
