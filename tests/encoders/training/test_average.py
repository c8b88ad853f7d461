"""The moving average: equal to diffusers', and restored after its use."""

import copy

import pytest
import torch
from torch import nn

from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators
from stringline.encoders.training.optimisation import MovingAverage


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9999])
def test_averages_equal_those_of_diffusers_to_the_bit(decay: float) -> None:
    # Before diffusers, which imports torchvision where that is installed.
    declare_torchvision_operators()
    from diffusers.training_utils import EMAModel

    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7))
    model[1].bias.requires_grad_(False)
    ours = MovingAverage(model, decay)
    theirs = EMAModel(model.parameters(), decay=decay, use_ema_warmup=False)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn(parameter.shape, generator=generator))
        ours.step()
        theirs.step(model.parameters())
        shadows = dict(zip(dict(model.named_parameters()), theirs.shadow_params, strict=True))
        for name, average in zip(ours.names, ours.parameters, strict=True):
            assert torch.equal(average, shadows[name])
    assert "1.bias" not in ours.names, "a parameter that is not trained costs nothing"
    ours.copy_to_model()
    assert all(map(torch.equal, model.parameters(), theirs.shadow_params))


def test_weights_are_restored_after_the_use_of_averages_even_after_an_error() -> None:
    model = nn.Linear(3, 2).train()
    average = MovingAverage(model, 0.9)
    started = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model.weight.add_(1.0)
    own = copy.deepcopy(model.state_dict())

    def borrow() -> None:
        with average.applied() as lent:
            assert lent is model
            assert not model.training
            assert not torch.is_grad_enabled()
            assert torch.equal(model.weight, started["weight"])
            raise RuntimeError("an evaluation failed")

    with pytest.raises(RuntimeError, match="an evaluation failed"):
        borrow()
    assert torch.equal(model.weight, own["weight"])
    assert torch.is_grad_enabled()
