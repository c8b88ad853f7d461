"""Frozen parts, adapters, learning rates by part, and layers that compute again."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from tests.encoders.training.noisy_line import Points, same_weights
from torch import Tensor, nn

from stringline.encoders.training.adaptation import Adaptation
from stringline.encoders.training.checkpoint import load_weights, save_checkpoint
from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.monitor import History
from stringline.encoders.training.settings import TrainerSettings, latest_state
from stringline.encoders.training.trainer import Trainer


class Layered(nn.Module):
    """A convolution, an encoder of several layers with dropout, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 2)
        self.encoder = nn.ModuleList(
            nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.2), nn.Tanh()) for _ in range(3)
        )
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        products = x[:, :, None] * x[:, None, :]
        x = x + self.stem(torch.stack([products, products**2], dim=1)).mean(dim=(2, 3))
        for layer in self.encoder:
            x = layer(x)
        y: Tensor = self.head(x)
        return y

    def loss(self, batch: Batch) -> Tensor:
        return ((self(batch["x"]) - batch["y"]) ** 2).mean()


def made(seed: int = 3) -> Layered:
    torch.manual_seed(seed)
    return Layered()


def run(
    directory: Path, model: Layered | None = None, stop: int | None = None, **settings: Any
) -> tuple[Layered, History]:
    def before(step: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    model = model or made()
    chosen: dict[str, Any] = {"steps": 12, "batch_size": 16, "save_every": 4, "precision": "no"}
    chosen |= settings
    history = Trainer(**chosen).fit(
        model,
        Points(before),
        directory,
        save_model=lambda model: save_checkpoint(directory / "end", model, {}),
        callbacks=Callbacks(
            keep=lambda model, name, _: save_checkpoint(directory / name, model, {})
        ),
    )
    return model, history


def settings(**chosen: Any) -> TrainerSettings:
    return TrainerSettings(steps=1, batch_size=1, **chosen)


CHOICES: list[dict[str, Any]] = [
    {"freeze": ["encoder"]},
    {"lora": {"encoder": 2}, "freeze": ["encoder.0"]},
    {"lora": {"*": 1}},
    {"learning_rate_factors": {"encoder": 0.1, "encoder.2": 2}},
    {"gradient_checkpointing": True, "read_every": 5},
    {"channels_last": True, "fused": True, "read_every": 3},
]


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_a_continued_run_equals_an_uninterrupted_one(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    """Its model, checkpoint and tensors have the names of the plain model."""
    whole, history = run(tmp_path / "whole", **chosen)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop=7, **chosen)
    continued, later = run(tmp_path / "stopped", model=made(), **chosen)
    assert same_weights(whole, continued)
    assert history.losses() == later.losses()
    assert list(whole.state_dict()) == list(made().state_dict())
    assert all(parameter.requires_grad for parameter in whole.parameters())
    for name in ("latest", "end"):
        loaded = made(seed=8)
        load_weights(tmp_path / "whole" / name, loaded)
        for parameter, same in zip(loaded.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(parameter, same)


def test_frozen_parts_keep_their_weights_and_evaluate(tmp_path: Path) -> None:
    """They are without dropout, optimiser and average; a checkpoint contains them."""
    started = made()
    with Adaptation(settings(freeze=["encoder"]), model := made()) as adaptation:
        adaptation.train()
        assert not any(module.training for module in model.encoder.modules())
        assert model.head.training
    trained, _ = run(tmp_path, freeze=["encoder"])
    assert same_weights(trained.encoder, started.encoder)
    assert not same_weights(trained.head, started.head)
    state = latest_state(tmp_path)
    assert state is not None
    kept = (state / "state.safetensors").read_bytes()
    assert b"model/encoder.0.0.weight" in kept
    assert b"average/encoder" not in kept
    assert b"optimizer/encoder" not in kept


def test_an_adapter_changes_a_weight_by_a_matrix_of_its_rank(tmp_path: Path) -> None:
    """At first by nothing; biases and frozen weights stay."""
    plain = made()
    with Adaptation(settings(lora={"encoder.1": 1}), model := made()):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
        model.eval()
        torch.testing.assert_close(model(x), plain.eval()(x), rtol=0, atol=0)
    trained, _ = run(tmp_path, lora={"encoder.1": 1}, learning_rate=0.05)
    before = plain.state_dict()
    after = trained.state_dict()
    change = after["encoder.1.0.weight"] - before["encoder.1.0.weight"]
    sizes = torch.linalg.svdvals(change)
    assert sizes[0] > 1e-3
    assert sizes[1] < 1e-5 * sizes[0] + 1e-6
    assert torch.equal(after["encoder.1.0.bias"], before["encoder.1.0.bias"])
    assert not torch.equal(after["head.weight"], before["head.weight"])


def test_layers_that_compute_again_give_the_same_loss_and_gradients() -> None:
    """Also with dropout, whose draws are repeated."""
    found = []
    for chosen in (False, True):
        with Adaptation(settings(gradient_checkpointing=chosen), model := made()) as adaptation:
            adaptation.train()
            torch.manual_seed(4)
            loss = model.loss({"x": torch.ones(7, 3), "y": torch.zeros(7, 2)})
            loss.backward()  # type: ignore[no-untyped-call]
            found.append([loss, *(each.grad for each in model.parameters())])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)


def test_parts_have_their_learning_rates() -> None:
    model = made()
    names = [name for name, _ in model.named_parameters()]
    groups = settings(learning_rate_factors={"encoder": 0.1, "*.bias": 3}).parameter_groups(model)
    by_name = {
        name: group["learning_rate_factor"]
        for group in groups
        for name, parameter in model.named_parameters()
        if any(parameter is each for each in group["params"])  # type: ignore[attr-defined]
    }
    assert by_name == {
        name: 3.0 if name.endswith("bias") else 0.1 if name.startswith("encoder") else 1.0
        for name in names
    }


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"freeze": ["encodr"]}, "the model for trainer.freeze 'encodr'. Did you mean 'encoder'"),
        ({"lora": {"heads": 2}}, r"for trainer.lora 'heads'. Did you mean 'head'"),
        ({"lora": {"*.bias": 2}}, r"trainer.lora names '\*.bias', which has no linear layer"),
        ({"freeze": ["*"]}, r"trainer.freeze is \['\*'\]: no parameter is left to train"),
        ({"attention": "bf16"}, r"the model has no attention over positions; allowed: 'float32'"),
    ],
)
def test_settings_that_do_not_apply_to_a_model_are_refused(
    chosen: dict[str, Any], message: str
) -> None:
    """The model is then as it was."""
    model = made()
    with pytest.raises(ValueError, match=message):
        Adaptation(settings(**chosen), model)
    assert list(model.state_dict()) == list(made().state_dict())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_factor_of_an_unknown_part_and_a_model_without_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"learning_rate_factors 'haed'. Did you mean 'head'"):
        settings(learning_rate_factors={"haed": 0.1}).parameter_groups(made())
    with pytest.raises(ValueError, match=r"has no list of layers; allowed: models with an nn.Modu"):
        Adaptation(settings(gradient_checkpointing=True), nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"freeze": "encoder"}, r"freeze is 'encoder'; allowed: a list of parts, such as \[enco"),
        ({"lora": ["encoder"]}, r"lora is \['encoder'\]; allowed: a number for each part"),
        ({"lora": {"encoder": 0}}, r"trainer.lora.encoder must be an integer of at least 1"),
        ({"learning_rate_factors": {"encoder": 0}}, "trainer.learning_rate_factors.encoder must"),
        ({"attention": "fp8"}, r"trainer.attention is 'fp8'; allowed: 'float32', 'bf16'"),
        ({"device": "gpu"}, r"trainer.device is 'gpu'; allowed: 'auto', 'cuda'"),
        ({"num_workers": 0}, r"trainer.num_workers must be an integer of at least 1 \(got 0\)"),
    ],
)
def test_wrong_settings_are_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**chosen)


@pytest.mark.parametrize("trainer", ["laptop", "gpu", "multi_gpu"])
@pytest.mark.parametrize("option", ["learning_rate_factors", "lora"])
def test_numbers_of_parts_can_be_given_on_a_command_line(trainer: str, option: str) -> None:
    given = [f"trainer={trainer}", f"trainer.{option}={{encoder: 2, blocks.*.head: 1}}"]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = compose("train", overrides=given).trainer
    chosen = instantiate(composed, min_processes=1, device="auto")
    assert getattr(chosen, option) == {"encoder": 2, "blocks.*.head": 1}


def test_the_fingerprint_names_what_decides_the_weights_and_nothing_of_the_machine() -> None:
    plain = settings().fingerprint()
    machine = {"num_workers": 4, "device": "cuda", "min_processes": 2, "pin_memory": True}
    assert settings(read_every=50, **machine, freeze=[], lora={}).fingerprint() == plain
    chosen = settings(freeze=["encoder"], tf32=True).fingerprint()
    assert chosen == plain | {"freeze": ["encoder"], "tf32": True}
