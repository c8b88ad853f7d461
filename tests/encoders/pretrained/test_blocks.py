from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from stringline.encoders.positions.encoding import Places
from stringline.encoders.pretrained.timm_models import timm_model
from stringline.encoders.pretrained.vision_transformer import PretrainedBlock

VIT, EVA = "vit_base_patch16_siglip_224", "vit_small_patch16_dinov3"


def block_of(name: str, options: Mapping[str, object]) -> nn.Module:
    """Returns the only block of a small model of timm, in float64."""
    model = timm_model(
        name,
        pretrained=False,
        options={"depth": 1, "embed_dim": 32, "num_heads": 2} | dict(options),
    )
    block = model.blocks[0].double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return block


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (VIT, {}),
        (VIT, {"qkv_bias": False, "proj_bias": False}),
        (VIT, {"init_values": 0.5, "qk_norm": True}),
        (VIT, {"scale_mlp_norm": True}),
        (EVA, {}),
        (EVA, {"qkv_bias": True}),
        (EVA, {"qkv_bias": True, "qkv_fused": False}),
        (EVA, {"qkv_fused": False}),
        (EVA, {"attn_type": "rope", "qkv_bias": True, "qk_norm": True}),
        (EVA, {"swiglu_mlp": True, "scale_mlp": True, "init_values": None}),
        (EVA, {"attn_only_layer_scale": True}),
    ],
    ids=str,
)
def test_without_places_a_block_equals_timms(
    name: str, options: Mapping[str, object], draw: Callable[..., Tensor]
) -> None:
    block, x = block_of(name, options).eval(), draw(2, 7, 32)
    expected = block(x)
    found = PretrainedBlock(block).eval()(x, Places())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert (expected - x).abs().max() > 1e-2


def test_all_weights_of_a_block_are_kept(draw: Callable[..., Tensor]) -> None:
    block = PretrainedBlock(block_of(EVA, {"qkv_bias": True, "init_values": 0.5}))
    block(draw(2, 7, 32), Places()).square().sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (VIT, {"scale_attn_norm": True}, "Attention does not support positions"),
        (VIT, {"attn_drop_rate": 0.1}, "it has dropout"),
        (VIT, {"embed_dim": 30}, "2 heads of 15 channels"),
        (VIT, {"attn_layer": "diff"}, "The model has a DiffAttention"),
        ("vit_base_patch16_xp_224", {}, "has a ParallelScalingBlock"),
        (EVA, {"attn_type": "rope", "qkv_fused": False, "num_kv_heads": 1}, "heads share keys"),
        (EVA, {"use_post_norm": True, "use_rot_pos_emb": False}, "has a EvaBlockPostNorm"),
    ],
)
def test_unsupported_attention_is_rejected(
    name: str, options: Mapping[str, object], message: str
) -> None:
    block = block_of(name, options)
    with pytest.raises(ValueError, match=message):
        PretrainedBlock(block)
