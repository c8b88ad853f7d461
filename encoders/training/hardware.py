"""The hardware of a run: the check that it is there, and its settings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

from stringline.encoders.training.settings import TrainerSettings

PATIENCE = timedelta(hours=6)  # The other processes wait while the main one evaluates.
ON_CPU = "trainer=laptop is the preset for CPUs"
SEVERAL = "torchrun --standalone --nproc-per-node GPUS --no-python stringline-train ..."


def check_hardware(settings: TrainerSettings) -> None:
    """Raises a ValueError if a GPU or processes that the settings need are missing.

    It reads nothing but the state of torch and the environment of `torchrun`.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if settings.device == "cuda" and not gpus:
        why = "" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)"
        raise ValueError(f"trainer.device is 'cuda', but there is no GPU{why}; {ON_CPU}.")
    if settings.pin_memory and not gpus:
        raise ValueError(
            f"trainer.pin_memory is true, but there is no GPU; allowed: false. {ON_CPU}."
        )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes < settings.least_processes:
        raise ValueError(
            f"trainer.least_processes is {settings.least_processes}, but the number of processes "
            f"is {processes}; start them by `{SEVERAL}`, or choose trainer=gpu for one GPU."
        )
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if settings.device == "cuda" and here > gpus:
        raise ValueError(
            f"{here} processes on this machine share {gpus} GPU{'s' if gpus > 1 else ''}; "
            f"allowed: --nproc-per-node up to {gpus}."
        )


def make_accelerator() -> Accelerator:
    """Returns the accelerator of this process, on a GPU if there is one."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    handlers = [InitProcessGroupKwargs(timeout=PATIENCE)] if several else []
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=handlers)


@contextmanager
def rounding(settings: TrainerSettings) -> Iterator[None]:
    """Rounds products of float32 matrices to TF32 on GPUs, if it is set, for a block."""
    if not settings.tf32:
        yield
        return
    flags = torch.backends.cuda.matmul
    before = flags.allow_tf32
    flags.allow_tf32 = True
    try:
        yield
    finally:
        flags.allow_tf32 = before
