"""The training loop: it trains any module with a loss, stops on request and continues exactly.

Batches are augmented on the device of the model. Losses and gradient norms are read from the
device several steps at a time and must be finite. A stopped run continues from its state:
weights, optimiser, moving average and step.
"""

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Never

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.contract.argument_checks import without_value_checks
from stringline.datasets.contract.contract import Camera
from stringline.datasets.files.atomic import replaced_directory
from stringline.encoders.training.adaptation import Adaptation
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.interfaces import (
    Batch,
    Batches,
    Callbacks,
    LossWeight,
    Prepare,
    Probe,
    SaveModel,
)
from stringline.encoders.training.monitor import (
    LATEST,
    History,
    Meter,
    Monitor,
    Stopped,
    StopSignals,
)
from stringline.encoders.training.optimisation import (
    FACTOR,
    LossModule,
    MovingAverage,
    accumulate,
    examples,
    split,
)
from stringline.encoders.training.settings import (
    STATES,
    TrainerSettings,
    check_hardware,
    completed_steps,
    latest_state,
    make_accelerator,
    rounding,
)


def build_augmentation(config: Mapping[str, Any] | None) -> Augmentation | None:
    """Builds an augmentation from its configuration; None if it has no transforms.

    Raises:
        ValueError: The configuration describes something else.
    """
    if config is None:
        return None
    built = build(dict(config), nn.Module)
    if not isinstance(built, Augmentation):
        raise ValueError(
            f"augmentation is a {type(built).__name__}; allowed: {Augmentation.__name__}."
        )
    return built if built.transforms else None


def augment_batches(augmentation: Augmentation, cameras: Sequence[Camera]) -> Prepare:
    """Returns the callback that augments the images of cameras in each batch."""

    def prepare(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
        changed: Mapping[str, Tensor] = augmentation(batch, cameras, generator)
        return changed

    return prepare


@dataclass(frozen=True)
class Reading:
    """The numbers of a step: training time so far, loss and gradient norm."""

    step: int
    seconds: float
    loss: float
    gradient_norm: float


class Readings:
    """Collects numbers on the device; the host waits for the device only when it reads them."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, float]] = []
        self._numbers: list[Tensor] = []

    def add(self, step: int, seconds: float, loss: Tensor, norm: Tensor) -> None:
        """Adds the scalars of a step."""
        self._steps.append((step, seconds))
        self._numbers.append(torch.stack((loss.double(), norm.double())))

    def read(self) -> list[Reading]:
        """Returns the numbers of all steps since the last call."""
        if not self._steps:
            return []
        rows: list[list[float]] = torch.stack(self._numbers).tolist()
        readings = [
            Reading(step, seconds, loss, norm)
            for (step, seconds), (loss, norm) in zip(self._steps, rows, strict=True)
        ]
        self._steps.clear()
        self._numbers.clear()
        return readings


_LISTED = 4  # Examples that an error message names.


class BrokenLossError(ValueError):
    """The loss or its gradients are not finite.

    With `read_every=1` the weights are still those of the step before; otherwise up to `read_every`
    steps have changed them since.
    """


def check_finite(
    loss: float,
    gradient_norm: float,
    *,
    step: int,
    batch: Batch | None,
    names: Callable[[], Sequence[str]],
    file: Path,
) -> None:
    """Raises a BrokenLossError, with the step and its examples, if a number is not finite.

    The gradient norm is that of all processes. The batch is None after the update of the weights.
    `names` returns the name of each example of the batch, or no names if they are unknown; `file`
    receives them.
    """
    if math.isfinite(loss) and math.isfinite(gradient_norm):
        return
    what = (
        f"loss is {loss}"
        if not math.isfinite(loss)
        else f"gradient norm is {gradient_norm} and the loss {loss}"
    )
    named = list(names())
    broken = {} if batch is None else broken_examples(batch)
    if named:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name}\n" for name in [f"The {what} at step {step}.", *named]))
    message = f"The {what} at step {step}. "
    if named:
        message += f"Its examples: {_listed(range(len(named)), named)}; {file} lists all of them. "
    if batch is None:
        raise BrokenLossError(
            f"{message}The saved state of earlier steps is unchanged. Continue with "
            f"trainer.read_every=1, which names the inputs that are not finite."
        )
    if broken:
        inputs = "; ".join(f"{key} of {_listed(rows, named)}" for key, rows in broken.items())
        message += f"Inputs that are not finite: {inputs}. Repair or exclude those examples. "
    else:
        message += (
            "All inputs are finite. Lower trainer.learning_rate or set trainer.precision=no. "
        )
    raise BrokenLossError(
        f"{message}The weights and the saved state of earlier steps are unchanged."
    )


def broken_examples(batch: Batch) -> dict[str, list[int]]:
    """Returns, for each tensor with numbers that are not finite, the examples that contain them."""
    broken = {key: _rows(value) for key, value in batch.items() if value.is_floating_point()}
    return {key: rows for key, rows in broken.items() if rows}


def _rows(value: Tensor) -> list[int]:
    broken = ~value.isfinite()
    rows: list[int] = broken.reshape(len(value), -1).any(dim=1).nonzero()[:, 0].tolist()
    return rows


def _listed(rows: Sequence[int], names: Sequence[str]) -> str:
    shown = ", ".join(names[row] if names else f"example {row}" for row in rows[:_LISTED])
    return shown + (f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else "")


class ValidationLoss:
    """The mean loss of a model on fixed batches with fixed random draws.

    The draws of a loss, such as noise levels, scatter more than a model improves in a thousand
    steps. With the same draws every time, differences of the loss are differences of the model.
    """

    def __init__(
        self,
        batches: Callable[[], Iterator[Batch]],
        *,
        seed: int = 0,
        loss_weight: LossWeight | None = None,
    ) -> None:
        """Builds the loss; `batches` returns the same batches on every call."""
        self._batches = batches
        self._seed = seed
        self._loss_weight = loss_weight

    def __call__(self, model: nn.Module) -> float:
        """Returns the mean loss of a model in evaluation mode, without drawing random numbers.

        The state of the global generator is restored.
        """
        device = next(model.parameters()).device
        total = 0.0
        weights = 0.0
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
            for number, batch in enumerate(self._batches()):
                moved = {key: value.to(device) for key, value in batch.items()}
                torch.manual_seed(self._seed + number)
                loss: Tensor = model.loss(moved)  # type: ignore[operator]  # See LossModule.
                weight = (
                    float(self._loss_weight(moved)) if self._loss_weight else float(examples(moved))
                )
                total = total + loss.item() * weight
                weights = weights + weight
        if not weights:
            raise ValueError(
                "There is nothing to validate with; allowed: at least one batch with a weight "
                "above 0."
            )
        return total / weights


STATE_FILE = "state.safetensors"


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
    target = directory / STATES / f"step_{step:08d}"
    with replaced_directory(target) as fresh:
        save_file(
            {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()},
            fresh / STATE_FILE,
        )
    for older in target.parent.glob("step_*"):
        if older != target:
            shutil.rmtree(older)


def restore_state(
    state: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: MovingAverage
) -> int:
    """Restores model, optimiser and average; returns the number of completed steps."""
    try:
        with safe_open(state / STATE_FILE, framework="pt") as file:
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
    return completed_steps(state)


def _state_of(
    parameter: nn.Parameter, stored: Mapping[str, Tensor], fused: bool
) -> dict[str, Tensor]:
    """Returns the state of an optimiser on the device, and with the strides, of its parameter.

    A fused AdamW reads moments in the order of memory, as those of its own are. The stored ones are
    contiguous, and weights of convolutions are often `channels_last`.
    """
    state = {}
    for key, tensor in stored.items():
        if tensor.shape == parameter.shape and key != "step":
            state[key] = torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)
        else:
            # Only a fused optimiser counts its steps on the device.
            state[key] = tensor if key == "step" and not fused else tensor.to(parameter.device)
    return state


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors whose names start with a prefix, without it."""
    return {
        key.removeprefix(prefix): tensor
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }


logger = logging.getLogger(__name__)


class Run:
    """One training run; see `Trainer.fit`."""

    def __init__(
        self,
        settings: TrainerSettings,
        model: nn.Module,
        adaptation: Adaptation,
        directory: Path,
        callbacks: Callbacks,
    ) -> None:
        self.settings = settings
        self.model = model
        self.adaptation = adaptation
        self.readings = Readings()
        self.directory = directory
        self.callbacks = callbacks
        self.accelerator = make_accelerator()
        wrapped = LossModule(model)
        if settings.compiles(self.accelerator.device):
            wrapped.compile(dynamic=False)
        optimizer = torch.optim.AdamW(
            settings.parameter_groups(model),
            lr=settings.learning_rate,
            betas=settings.betas,
            fused=settings.fused or None,
        )
        self.prepared, self.optimizer = self.accelerator.prepare(wrapped, optimizer)
        self.average = MovingAverage(model, settings.ema_decay)
        self.is_main_process = bool(self.accelerator.is_main_process)
        self.process = int(self.accelerator.process_index)
        name = "history.jsonl" if self.is_main_process else f"history_{self.process}.jsonl"
        self.history = History.open(directory / name)
        self.monitor = Monitor(
            settings,
            callbacks,
            self.accelerator,
            averaged=self._averaged,
            history=self.history,
            directory=directory,
        )

    def train(self, batches: Batches) -> None:
        """Does all remaining steps."""
        settings = self.settings
        history = self.history
        processes = int(self.accelerator.num_processes)
        meter = Meter(settings.batch_size * processes)
        with ExitStack() as stack:
            stack.enter_context(closing(history))
            first = self._resume()
            stack.enter_context(closing(self.monitor)).begin(first)
            stop = stack.enter_context(StopSignals())
            # An earlier call may have been stopped before its evaluation.
            self.monitor.evaluate(first, stop)
            bar: tqdm[Never] = tqdm(
                total=settings.steps,
                initial=first,
                desc="training",
                unit="step",
                disable=not self.is_main_process,
                mininterval=0.5,
            )
            stack.enter_context(closing(bar))
            before = history.seconds()
            started = time.monotonic()
            stream = meter.waits(batches.stream(first, settings.steps, self.process, processes))
            for step, batch in enumerate(stack.enter_context(closing(stream)), start=first):
                loss, norm = self._step(step, batch)
                meter.step_done()
                self.readings.add(step, before + time.monotonic() - started, loss, norm)
                if self._reads(step + 1, stop):
                    self._read(meter, bar)
                    self.monitor.validate(step + 1, meter, bar)
                    self._save(step + 1, stop)
                    self.monitor.evaluate(step + 1, stop)

    def finish(self, save_model: SaveModel) -> History:
        """Copies the averaged weights into the model and saves it."""
        self.average.copy_to_model()
        self.model.eval()
        if self.is_main_process:
            with self.adaptation.merged():
                save_model(self.model)
        self.accelerator.wait_for_everyone()
        return self.history

    def _resume(self) -> int:
        """Restores the newest state and returns the number of completed steps."""
        state = latest_state(self.directory)
        first = (
            0 if state is None else restore_state(state, self.model, self.optimizer, self.average)
        )
        if (furthest := self._most(first)) != first:
            raise ValueError(
                f"Process {self.process} finds a state after {first} steps in "
                f"{self.directory.absolute()}, other processes one after {furthest}. Put the "
                f"output into a directory that all machines share."
            )
        self.history.truncate(first)
        if first:
            logger.info("Continuing after step %d.", first)
        return first

    @contextmanager
    def _averaged(self) -> Iterator[nn.Module]:
        """Yields the averaged model, whose state dictionary has the names of the whole model."""
        with self.average.applied() as model, self.adaptation.merged():
            yield model

    def _step(self, step: int, batch: Batch) -> tuple[Tensor, Tensor]:
        """Does one optimiser step and returns its loss and gradient norm, on the device."""
        settings = self.settings
        accelerator = self.accelerator
        device = accelerator.device
        seed = (settings.seed * 1_000_003 + step) * 1_009 + self.process
        torch.manual_seed(seed)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * settings.schedule(step) * group[FACTOR]
        self.adaptation.train()
        batch = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        if self.callbacks.prepare is not None:
            # Another seed than that of the loss, or both would draw the same numbers.
            generator = torch.Generator(device).manual_seed(seed ^ 0x5A5A5A5A)
            batch = self.callbacks.prepare(batch, generator)
        with without_value_checks() if settings.read_every > 1 else nullcontext():
            loss = accumulate(
                accelerator,
                self.prepared,
                split(batch, settings.accumulate),
                bf16=settings.in_bf16(),
                loss_weight=self.callbacks.loss_weight,
            )
        norm = accelerator.clip_grad_norm_(self.prepared.parameters(), settings.clip_norm)
        if settings.read_every == 1:
            self._check(step, float(loss), float(norm), batch)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.step()
        return loss, norm

    def _check(self, step: int, loss: float, norm: float, batch: Batch | None) -> None:
        """Raises a BrokenLossError if a number is not finite."""
        file = self.directory / f"broken_batch_{self.process}.txt"
        check_finite(
            loss, norm, step=step, batch=batch, names=partial(self._names, step), file=file
        )

    def _reads(self, done: int, stop: StopSignals) -> bool:
        """Returns whether loss and signals are read after `done` steps, alike in all processes.

        They are read before everything else that is due. A single process need not wait for others
        to stop.
        """
        settings = self.settings
        due = (settings.read_every, settings.save_every, settings.probe_every)
        alone = self.accelerator.num_processes == 1
        return (
            done == settings.steps
            or any(done % every == 0 for every in due)
            or self.monitor.evaluates(done)
            or (alone and bool(stop.received))
        )

    def _read(self, meter: Meter, bar: "tqdm[Never]") -> None:
        """Reads and logs the numbers of the steps since the last call."""
        for reading in self.readings.read():
            self._check(reading.step, reading.loss, reading.gradient_norm, None)
            self.history.add(**vars(reading))
            self.monitor.log(reading.step, reading.loss, reading.gradient_norm, meter, bar)

    def _save(self, done: int, stop: StopSignals) -> None:
        """Saves the state if it is due, a stop was requested, or the model is the best so far.

        The best model is kept after its state is saved. So a killed run never continues from a step
        before a model that it has kept, and its validation loss is not computed twice.
        """
        # All processes have to stop after the same step, whichever of them got the signal.
        signalled = self._most(stop.received)
        last = done == self.settings.steps
        evaluates = self.monitor.evaluates(done)
        due = bool(last or evaluates or signalled or done % self.settings.save_every == 0)
        if self.is_main_process and (due or self.monitor.improved(done)):
            save_state(self.directory, done, self.model, self.optimizer, self.average)
            self.monitor.keep(LATEST, done)
            self.monitor.keep_best(done)
        if due:  # For a best model alone, which only the main process detects, the others go on.
            self.accelerator.wait_for_everyone()
        if signalled and (evaluates or not last):
            raise Stopped(signalled, done, self.directory)

    def _most(self, number: int) -> int:
        """Returns the largest of the numbers of all processes."""
        if self.accelerator.num_processes == 1:
            return number
        own = torch.tensor([number], device=self.accelerator.device)
        return int(self.accelerator.reduce(own, "max").item())

    def _names(self, step: int) -> Sequence[str]:
        """Returns the names of this process's examples of a step."""
        describe = self.callbacks.describe
        if describe is None:
            return ()
        return describe(step, self.process, int(self.accelerator.num_processes))


class Trainer(TrainerSettings):
    """Trains a module whose `loss(batch)` returns a scalar.

    AdamW with a linear warm-up and a cosine decay, clipped gradients and a moving average of the
    weights. Accelerate distributes the run: one process and `torchrun` use the same code, and a
    program with several processes calls `fit` in a `process_group` block. The random numbers of a
    step depend on seed, step and process alone, so a continued run equals an uninterrupted one to
    the bit. A run that continues to more steps has the learning rate of a run of that many from
    there on: it equals an uninterrupted one if its schedule has been the same so far, in the
    warm-up or with `final_learning_rate=1`.
    """

    def fit(
        self,
        model: nn.Module,
        batches: Batches,
        directory: Path,
        *,
        save_model: SaveModel,
        probe: Probe | None = None,
        prepare: Prepare | None = None,
        callbacks: Callbacks | None = None,
    ) -> History:
        """Trains to the last step, from the newest state in the directory, if there is one.

        Args:
            model: A module with `loss(batch) -> scalar tensor`; it ends with the averaged weights.
            batches: The batch of each step.
            directory: Directory of the history and the resumable state.
            save_model: Called with the averaged model after the last step.
            probe: Replaces `callbacks.probe`.
            prepare: Replaces `callbacks.prepare`.
            callbacks: Further functions to call.

        Returns:
            The history of the whole run.

        Raises:
            ValueError: The hardware is missing, or the model lacks a part that a setting names.
            BrokenLossError: The loss or its gradients are not finite; the last state stays.
            Stopped: Ctrl-C or SIGTERM arrived; the state of the last completed step is saved.
        """
        callbacks = callbacks or Callbacks()
        callbacks = replace(
            callbacks, probe=probe or callbacks.probe, prepare=prepare or callbacks.prepare
        )
        check_hardware(self)
        with rounding(self), Adaptation(self, model) as adaptation:
            run = Run(self, model, adaptation, directory, callbacks)
            run.train(batches)
            return run.finish(save_model)
