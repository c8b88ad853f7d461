"""Missing hardware is an error before a run begins, which names the preset for CPUs."""

from typing import Any

import pytest
import torch

from stringline.encoders.training.settings import TrainerSettings, check_hardware, rounding


def settings(**chosen: Any) -> TrainerSettings:
    return TrainerSettings(steps=1, batch_size=1, **chosen)


@pytest.mark.parametrize(
    ("chosen", "gpus", "environment", "message"),
    [
        ({"device": "cuda"}, 0, {}, r"is 'cuda', but there is no GPU.*; trainer=laptop is the pre"),
        ({"pin_memory": True}, 0, {}, r"pin_memory is true, but there is no GPU.*trainer=laptop"),
        ({"min_processes": 2}, 1, {}, r"number of processes is 1; start them by `torchrun .*"),
        (
            {"device": "cuda"},
            2,
            {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"},
            r"4 processes on this machine share 2 GPUs; allowed: --nproc-per-node up to 2",
        ),
    ],
)
def test_missing_hardware_is_named(
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[str, Any],
    gpus: int,
    environment: dict[str, str],
    message: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        check_hardware(settings(**chosen))
    check_hardware(settings())


def test_rounding_ends_with_the_run() -> None:
    flags = torch.backends.cuda.matmul
    before = flags.allow_tf32
    with rounding(settings(tf32=True)):
        assert flags.allow_tf32
    assert flags.allow_tf32 == before
