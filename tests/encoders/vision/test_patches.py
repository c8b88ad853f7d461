"""Tokens of patches, by the stem and by one linear map."""

from functools import partial

import pytest
import torch

from stringline.encoders.training.checkpoint import build
from stringline.encoders.vision.patches import ConvolutionalStem, EmbeddingFactory, PatchProjection

FACTORIES: dict[str, tuple[EmbeddingFactory, int]] = {
    "stem": (partial(ConvolutionalStem, width=8), 16),
    "projection_14": (partial(PatchProjection, patch=14), 14),
    "projection_16": (PatchProjection, 16),
    "projection_32": (partial(PatchProjection, patch=32), 32),
}


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize("channels", [3, 4])
def test_one_token_per_patch_row_by_row(kind: str, channels: int) -> None:
    """The token of a patch changes when its middle changes; the others of its row do not."""
    factory, patch = FACTORIES[kind]
    torch.manual_seed(0)
    embedding = factory(8, channels=channels)
    assert (embedding.patch, embedding.channels) == (patch, channels)
    images = torch.randn(2, 2 * patch, 3 * patch, channels)
    tokens = embedding(images)
    assert tokens.shape == (2, 6, 8)
    changed = images.clone()
    changed[1, patch + patch // 2, 2 * patch + patch // 2] += 1
    differs = (embedding(changed) - tokens).abs().amax(dim=2) > 1e-6
    assert differs.nonzero().tolist() == [[1, 5]]


def test_a_patch_of_the_stem_has_a_symmetric_margin() -> None:
    torch.manual_seed(0)
    images = torch.randn(1, 80, 80, 3, requires_grad=True)
    ConvolutionalStem(8, width=8)(images)[0, 12].sum().backward()  # The middle one of 5 x 5.
    assert images.grad is not None
    rows = images.grad[0].abs().amax(dim=(1, 2)).nonzero().flatten()
    columns = images.grad[0].abs().amax(dim=(0, 2)).nonzero().flatten()
    for seen in (rows, columns):
        assert (int(seen[0]), int(seen[-1])) == (32 - 5, 47 + 5)


@pytest.mark.parametrize("patch", [14, 16, 32])
def test_the_projection_is_one_linear_map_of_the_pixels_of_a_patch(patch: int) -> None:
    torch.manual_seed(0)
    embedding = PatchProjection(8, patch=patch).double()
    images = torch.randn(2, 2 * patch, 3 * patch, 3, dtype=torch.float64)
    patches = images.reshape(2, 2, patch, 3, patch, 3).permute(0, 1, 3, 5, 2, 4).reshape(2, 6, -1)
    weight, bias = embedding.projection.weight.flatten(1), embedding.projection.bias
    torch.testing.assert_close(
        embedding(images), torch.nn.functional.linear(patches, weight, bias), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize(
    "shape", [(1, 224, 223, 3), (1, 225, 224, 3), (1, 224, 224, 5), (224, 224, 3)]
)
def test_invalid_images_are_rejected(kind: str, shape: tuple[int, ...]) -> None:
    factory, patch = FACTORIES[kind]
    with pytest.raises(
        ValueError, match=rf"shape \({shape[0]}, .*H, W, 3\), H and W multiples of {patch}"
    ):
        factory(8, channels=3)(torch.zeros(shape))


def test_a_configuration_selects_the_embedding() -> None:
    factory = build(
        {"_target_": "stringline.PatchProjection", "_partial_": True, "patch": 14}, torch.nn.Module
    )
    assert factory(8, channels=4).projection.weight.shape == (8, 4, 14, 14)


def test_an_empty_patch_is_rejected() -> None:
    with pytest.raises(ValueError, match="patch is 0 and channels is 3; allowed: from 1"):
        PatchProjection(8, patch=0)
