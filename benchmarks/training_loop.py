"""The real training loop beside its network alone, and the effect of the trainer's options."""

import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from measurement import Row, row
from random_windows import RandomWindows
from torch import Tensor
from tqdm import tqdm
from training_setting import Setting

from stringline.datasets.contract.argument_checks import without_value_checks
from stringline.encoders.training.adaptation import Adaptation
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.interfaces import Callbacks
from stringline.encoders.training.optimisation import LossModule
from stringline.encoders.training.settings import rounding
from stringline.encoders.training.trainer import Trainer
from stringline.sim.training.training_data import WindowBatches

WARM_UP = {"cpu": 1, "cuda": 20}
PLAIN = (
    "trainer=laptop",
    "trainer.compile=false",
    "trainer.precision=no",
    "trainer.read_every=1",
)
OPTIONS = {
    "tf32": ("trainer.tf32=true",),
    "bf16": ("trainer.precision=bf16",),
    "bf16_attention": ("trainer.precision=bf16", "trainer.attention=bf16"),
    "compile": ("trainer.compile=true",),
    "channels_last": ("trainer.channels_last=true",),
    "fused": ("trainer.fused=true",),
    "num_workers": ("trainer.num_workers=4",),
    "pin_memory": ("trainer.pin_memory=true",),
    "read_every": ("trainer.read_every=50",),
    "gradient_checkpointing": ("trainer.gradient_checkpointing=true",),
    "all": (),
}
"""The overrides of each option; `all` has none, but the chosen trainer."""


class MeasuredBatches:
    """Batches with the time of the steps after the warm-up, and the waits of the host in them."""

    def __init__(self, batches: WindowBatches, device: str) -> None:
        self._batches = batches
        self._device = device
        self.seconds = 0.0
        self.waits = 0

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches; the last step, which saves the state, is not measured."""
        with closing(self._batches.stream(first_step, last_step, process, processes)) as stream:
            for step, batch in enumerate(stream):
                if step == WARM_UP[self._device]:
                    began = now(self._device)
                    seen = self._watch()
                if step == last_step - 1:
                    self.waits = sum("synchroniz" in str(each.message) for each in seen)
                    self._watch(on=False)
                    self.seconds = now(self._device) - began
                yield batch

    def _watch(self, *, on: bool = True) -> list[warnings.WarningMessage]:
        """Lets torch warn of waits for a GPU, until it is called with `on=False`."""
        if self._device == "cpu":
            return []
        if not on:
            torch.cuda.set_sync_debug_mode("default")
            self._caught.__exit__(None, None, None)
            return []
        self._caught = warnings.catch_warnings(record=True)
        seen = self._caught.__enter__()
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        assert seen is not None
        return seen


def now(device: str) -> float:
    """Returns the time when the device has done its work, s."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def chosen_trainer(setting: Setting, policy: str, steps: int, *overrides: str) -> Trainer:
    """Returns the trainer of a recipe for some steps after the warm-up, without validation."""
    trainer = build(setting.settings(policy, *overrides)["trainer"])
    assert isinstance(trainer, Trainer)
    total = WARM_UP[setting.device] + steps + 1
    return replace(
        trainer, steps=total, batch_size=setting.batch, save_every=total, probe_every=total
    )


def loop_time(
    setting: Setting, policy: str, trainer: Trainer, windows: RandomWindows
) -> tuple[float, float]:
    """Returns seconds and waits per step of `Trainer.fit`."""
    # RandomWindows has the interface of Windows.
    batches = WindowBatches(
        windows,  # type: ignore[arg-type]
        setting.batch,
        seed=0,
        num_workers=trainer.num_workers,
        pin_memory=trainer.pin_memory,
    )
    measured = MeasuredBatches(batches, setting.device)
    built = setting.policy(policy, windows)
    with tempfile.TemporaryDirectory(prefix="stringline-training-") as folder:
        trainer.fit(
            built,
            measured,
            Path(folder),
            save_model=lambda model: None,
            callbacks=Callbacks(loss_weight=built.loss_weight),
        )
    steps = trainer.steps - WARM_UP[setting.device] - 1
    return measured.seconds / steps, measured.waits / steps


def resident_time(setting: Setting, policy: str, trainer: Trainer, windows: RandomWindows) -> float:
    """Returns the seconds per step of the network alone, over one batch on the device."""
    model = setting.policy(policy, windows)
    batch = {
        key: torch.from_numpy(value).to(setting.device)
        for key, value in windows.batch(range(setting.batch)).items()
    }
    with rounding(trainer), Adaptation(trainer, model) as adaptation, without_value_checks():
        adaptation.train()
        network = LossModule(model)
        if trainer.compiles(torch.device(setting.device)):
            network.compile(dynamic=False)
        optimiser = torch.optim.AdamW(
            trainer.parameter_groups(model), lr=1e-4, fused=trainer.fused or None
        )
        for step in range(trainer.steps - 1):
            if step == WARM_UP[setting.device]:
                began = now(setting.device)
            with torch.autocast(setting.device, torch.bfloat16, enabled=trainer.in_bf16()):
                loss = network(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.clip_norm)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return (now(setting.device) - began) / (trainer.steps - 1 - WARM_UP[setting.device])


def measure_loop(setting: Setting, names: Sequence[str], rounds: int, steps: int) -> list[Row]:
    """Trains each policy by the loop and alone, in turn; the best rounds are compared."""
    windows = setting.windows()
    rows = []
    for name in tqdm(names, desc="loop", disable=None):
        trainer = chosen_trainer(setting, name, steps)
        loops = []
        alone = []
        for _ in range(rounds):
            loops.append(loop_time(setting, name, trainer, windows))
            alone.append(resident_time(setting, name, trainer, windows))
        best = min(loops)[0]
        ratio = min(alone) / best
        rate = setting.batch / best
        spread = sorted(loops)[rounds // 2][0] / best
        rows.append(row(f"loop/{name}", rate, "windows/s", "resident", ratio, spread=spread))
        rows.append(row(f"outside/{name}", 1 - ratio, "share"))
        if setting.device == "cuda":
            rows.append(row(f"waits/{name}", min(loops)[1], "per step"))
    return rows


def measure_options(
    setting: Setting, policy: str, options: Sequence[str], rounds: int, steps: int
) -> list[Row]:
    """Trains a policy by the loop with each option alone, in turn with none."""
    if not options:
        return []
    windows = setting.windows()
    chosen = {
        name: PLAIN + OPTIONS[name] if OPTIONS[name] else () for name in dict.fromkeys(options)
    }
    trainers = {
        name: chosen_trainer(setting, policy, steps, *overrides)
        for name, overrides in {"plain": PLAIN, **chosen}.items()
    }
    took: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in tqdm(range(rounds), desc="options", disable=None):
        for name, trainer in trainers.items():
            took[name].append(loop_time(setting, policy, trainer, windows)[0])
    plain = min(took.pop("plain"))
    return [
        row(f"option/{name}", setting.batch / min(times), "windows/s", "plain", plain / min(times))
        for name, times in took.items()
    ]
