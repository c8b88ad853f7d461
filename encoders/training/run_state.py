"""The state that a stopped run continues from: weights, optimiser, moving average and step."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stringline.datasets.files.replaced_directory import replaced_directory
from stringline.encoders.training.optimisation import MovingAverage

FILE = "state.safetensors"


def save_state(
    directory: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage,
) -> None:
    """Writes the state after `step` steps to `directory/state/step_<n>` and removes older ones."""
    tensors: dict[str, Tensor] = {
        f"model/{name}": tensor for name, tensor in model.state_dict().items()
    }
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        tensors |= {
            f"optimizer/{names[id(parameter)]}/{key}": torch.as_tensor(value)
            for key, value in state.items()
        }
    for name, averaged in zip(average.names, average.parameters, strict=True):
        tensors[f"average/{name}"] = averaged
    tensors["average_steps"] = torch.tensor(average.steps)
    target = directory / "state" / f"step_{step:08d}"
    with replaced_directory(target) as fresh:
        save_file(
            {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()},
            fresh / FILE,
        )
    for older in target.parent.glob("step_*"):
        if older != target:
            shutil.rmtree(older)


def latest_state(directory: Path) -> Path | None:
    """Returns the newest state of a run; None: no state."""
    states = sorted((directory / "state").glob("step_*"))
    return states[-1] if states else None


def restore_state(
    state: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: MovingAverage
) -> int:
    """Restores model, optimiser and average; returns the number of completed steps."""
    try:
        with safe_open(state / FILE, framework="pt") as file:
            # safe_open is not a mapping.
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        model.load_state_dict(_below("model/", tensors))
        fused = bool(optimizer.defaults.get("fused"))
        parameters = dict(model.named_parameters())
        for name, averaged in zip(average.names, average.parameters, strict=True):
            averaged.copy_(tensors[f"average/{name}"])
            if kept := _below(f"optimizer/{name}/", tensors):
                optimizer.state[parameters[name]] = _state_of(parameters[name], kept, fused)
        average.steps = int(tensors["average_steps"])
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"The training cannot continue from {state}: {error}. Remove that folder to start "
            f"again."
        ) from error
    return int(state.name.removeprefix("step_"))


def _state_of(
    parameter: nn.Parameter, stored: Mapping[str, Tensor], fused: bool
) -> dict[str, Tensor]:
    """Returns the state of an optimiser on the device, and with the strides, of its parameter.

    A fused AdamW reads moments in the order of memory, as those of its own are. The stored ones are
    contiguous, and weights of convolutions are often `channels_last`.
    """
    found = {}
    for key, tensor in stored.items():
        if tensor.shape == parameter.shape and key != "step":
            found[key] = torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)
        else:
            # Only a fused optimiser counts its steps on the device.
            found[key] = tensor if key == "step" and not fused else tensor.to(parameter.device)
    return found


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors whose names start with a prefix, without it."""
    return {
        key.removeprefix(prefix): tensor
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }
