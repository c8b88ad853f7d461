"""Devices of policies: names that are known here, and errors."""

import pytest
import torch

from stringline.policies.checkpoints.load import checked_device, open_policy


def test_the_processor() -> None:
    assert checked_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [
        ("cuda", 0, r"device is 'cuda'; allowed here, since torch finds no GPU: cpu\."),
        ("cuda:2", 2, r"device is 'cuda:2'; allowed here: cpu, cuda, cuda:0, cuda:1\."),
        ("gpu", 1, r"device is 'gpu'; allowed here: cpu, cuda, cuda:0\."),
    ],
)
def test_devices_that_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=message):
        open_policy("hand_over_banana", device=name)


def test_a_server_has_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"device is 'cuda' with the policy of a server"):
        open_policy("ws://127.0.0.1:1", device="cuda")
