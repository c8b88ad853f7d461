"""Times of the phases of a training step, as `stringline.encoders.training.trainer` does it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import torch
from random_windows import RandomWindows
from torch import Tensor

from stringline.encoders.training.optimisation import MovingAverage
from stringline.encoders.training.trainer import Trainer
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.sim.training.training_data import WindowBatches

PHASES = ("data", "encoder", "denoiser", "backward", "optimiser")


class Clock:
    """Adds up the times of phases, with synchronisation of the device."""

    def __init__(self, device: str) -> None:
        self._device, self.seconds = device, dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()

    def start(self) -> None:
        """Begins a phase."""
        if self._device == "cuda":
            torch.cuda.synchronize()
        self._last = time.perf_counter()

    def stop(self, phase: str) -> None:
        """Ends a phase, and begins the next one."""
        last = self._last
        self.start()
        self.seconds[phase] += self._last - last


class Training:
    """The step of the training loop in its phases."""

    def __init__(
        self, policy: ChunkPolicy, windows: RandomWindows, trainer: Trainer, batch: int
    ) -> None:
        self._policy = policy.train()
        self._trainer = trainer
        self._device = next(policy.parameters()).device
        self._optimiser = torch.optim.AdamW(
            trainer.parameter_groups(policy), lr=trainer.learning_rate, betas=trainer.betas
        )
        self._average = MovingAverage(policy, trainer.ema_decay)
        # RandomWindows has the interface of Windows.
        self._batches = WindowBatches(windows, batch, seed=0)  # type: ignore[arg-type]

    def round(self, steps: int) -> dict[str, float]:
        """Returns the mean seconds of each phase of a step, after one warm-up step."""
        clock = Clock(self._device.type)
        hooks = [
            self._policy.observation_encoder.register_forward_pre_hook(lambda *_: clock.start()),
            self._policy.observation_encoder.register_forward_hook(
                lambda *_: clock.stop("encoder")
            ),
        ]
        with closing(self._batches.stream(0, steps + 1)) as stream:
            self._step(stream, clock)
            clock.seconds = dict.fromkeys(PHASES, 0.0)
            for _ in range(steps):
                self._step(stream, clock)
        for hook in hooks:
            hook.remove()
        return {phase: seconds / steps for phase, seconds in clock.seconds.items()}

    def _step(self, stream: Iterator[Mapping[str, Tensor]], clock: Clock) -> None:
        trainer = self._trainer
        clock.start()
        batch = {
            key: value.to(self._device, non_blocking=True) for key, value in next(stream).items()
        }
        clock.stop("data")
        with torch.autocast(self._device.type, torch.bfloat16, enabled=trainer.in_bf16()):
            loss = self._policy.loss(batch)
        clock.stop("denoiser")  # The hook of the observation encoder has ended its part.
        loss.backward()  # type: ignore[no-untyped-call]
        clock.stop("backward")
        torch.nn.utils.clip_grad_norm_(self._policy.parameters(), trainer.clip_norm)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._average.step()
        clock.stop("optimiser")
