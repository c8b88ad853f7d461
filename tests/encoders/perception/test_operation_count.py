"""The count of LieRE's ViT-B is the published one, and rotations cost the same if shared."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from stringline.encoders.perception.perception_results import count_operations, rotation_cost
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.lie import LieRE
from stringline.encoders.positions.rotary import CayleyString, NoEncoding, RopeMixed
from stringline.encoders.vision.attention import LinearAttention
from stringline.encoders.vision.patches import PatchProjection
from stringline.encoders.vision.vit import VisionTransformer

HEADS = 4
HEAD_DIM = 16
TOKENS = 10
DEPTH = 3
DIM = HEADS * HEAD_DIM


class Classifier(nn.Module):
    def __init__(self, patches: nn.Module, vit: VisionTransformer, classes: int) -> None:
        super().__init__()
        self.patches = patches
        self.vit = vit
        self.head = nn.Linear(vit.unplaced_mark.numel(), classes)

    def forward(self, images: Tensor, coordinates: Tensor) -> Tensor:
        registers, _ = self.vit.encode(self.patches(images), coordinates)
        logits: Tensor = self.head(registers[:, 0])
        return logits


def inputs() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(2, TOKENS, DIM, generator=random), torch.rand(2, TOKENS, 2, generator=random)


def small(encoding: PositionEncoding, **options: object) -> VisionTransformer:
    return VisionTransformer(encoding, DIM, DEPTH, **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_vit_b_has_the_published_count() -> None:
    """64 patches of 4 x 4 pixels and CLS, 100 classes: 5.60106 G, as for timm's ViT-B."""
    vit = VisionTransformer.of_size("base", NoEncoding, axes=2)
    network = Classifier(PatchProjection(768, patch=4), vit, 100)
    found = count_operations(network, torch.zeros(1, 32, 32, 3), torch.zeros(1, 64, 2))
    assert found.total == 5_601_063_936
    assert found.rotations == 0


@pytest.mark.parametrize("share_heads", [False, True])
@pytest.mark.parametrize("share_layers", [False, True])
@pytest.mark.parametrize("block", [4, 16])
def test_rotations_by_matrices_cost_the_same_if_shared(
    share_heads: bool, share_layers: bool, block: int
) -> None:
    encoding = LieRE(HEADS, HEAD_DIM, 2, block=block, share_heads=share_heads)
    for values, vectors in ((False, 2), (True, 4)):
        network = small(encoding, values=values, share_layers=share_layers)
        found = count_operations(network, *inputs())
        assert found.rotations == DEPTH * vectors * 2 * TOKENS * DIM * block


@pytest.mark.parametrize("share_heads", [False, True])
def test_the_cost_of_matrices_is_what_the_counter_of_products_sees(share_heads: bool) -> None:
    x = torch.randn(2, HEADS, TOKENS, HEAD_DIM)
    with torch.no_grad():
        encoding = LieRE(HEADS, HEAD_DIM, 2, block=8, share_heads=share_heads)
        places = encoding.prepare(inputs()[1])
        with FlopCounterMode(display=False) as counter:
            places.rotate_in_basis(x)
    cost = rotation_cost(places, 2 * TOKENS, HEADS, HEAD_DIM)
    assert counter.get_total_flops() == 2 * cost > 0


@pytest.mark.parametrize("make", [RopeMixed, CayleyString])
@pytest.mark.parametrize("share_heads", [False, True])
def test_planes_cost_as_much_as_matrices_of_two(
    make: Callable[..., PositionEncoding], share_heads: bool
) -> None:
    encoding = make(HEADS, HEAD_DIM, 2, theta=100.0, share_heads=share_heads)
    found = count_operations(small(encoding), *inputs())
    of_two = LieRE(HEADS, HEAD_DIM, 2, block=2)
    assert found.rotations == count_operations(small(of_two), *inputs()).rotations


def test_without_rotations_the_products_are_those_without_an_encoding() -> None:
    none = count_operations(small(NoEncoding(HEADS, HEAD_DIM, 2)), *inputs())
    mixed = count_operations(small(RopeMixed(HEADS, HEAD_DIM, 2, theta=100.0)), *inputs())
    assert none.rotations == 0
    assert mixed.products == none.products == none.total
    # Per layer 12 dim^2 per token, and for each pair of tokens 2 dim.
    expected = DEPTH * 2 * (12 * DIM**2 * TOKENS + 2 * DIM * TOKENS**2)
    assert none.products == expected


def test_linear_attention_rotates_as_many_vectors() -> None:
    encoding = RopeMixed(HEADS, HEAD_DIM, 2, theta=100.0)
    found = count_operations(small(encoding, attention=LinearAttention), *inputs())
    assert found.rotations == count_operations(small(encoding), *inputs()).rotations > 0


def test_the_count_leaves_the_network_as_it_was() -> None:
    network = small(RopeMixed(HEADS, HEAD_DIM, 2, theta=100.0))
    before = network(*inputs())
    count_operations(network, *inputs())
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert torch.equal(network(*inputs()), before)
