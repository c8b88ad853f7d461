"""The device on which a policy computes."""

import re

import torch

CPU = "cpu"


def checked_device(name: str) -> torch.device:
    """Returns a device by its name: `cpu`, `cuda`, or `cuda:<number>`.

    Raises:
        ValueError: The name is unknown, or the GPU does not exist.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = [CPU, *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    if name in known:
        return torch.device(name)
    none = re.fullmatch(r"cuda(:\d+)?", str(name)) and not gpus
    why = ", since torch finds no GPU" if none else ""
    raise ValueError(f"device is {name!r}; allowed here{why}: {', '.join(known)}.")
