"""Descriptions of checkpoints whose numbers would fill the memory, or never end."""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import SHIPPED, load_policy, save_policy

MakePolicy = Callable[..., ChunkPolicy]


@pytest.fixture
def altered(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> Callable[..., Path]:
    """Writes a checkpoint whose description is changed."""
    folder = tmp_path / "c"
    save_policy(folder, make_policy(), configuration(), {})

    def alter(**changes: Any) -> Path:
        file = folder / "checkpoint.yaml"
        description = yaml.safe_load(file.read_text())
        for path, value in changes.items():
            *above, last = path.split("__")
            part = description
            for name in above:
                part = part[name]
            part[last] = value
        file.write_text(yaml.safe_dump(description, sort_keys=False))
        return folder

    return alter


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__depth": 10_000_000}, r"model\.depth is 10000000; allowed: up to 65536"),
        ({"model__noise_levels": 10**9}, r"model\.noise_levels is 1000000000; allowed: up to"),
        ({"model__observation_encoder__depth": 10**7}, r"observation_encoder\.depth is 10000000"),
        ({"model__chunk": 10**8}, r"model\.chunk is 100000000; allowed"),
        ({"model__depth": 60_000}, r"tensors, and its description builds a larger network"),
        ({"model__dim": 65_536}, r"tensors, and its description builds a larger network"),
        (
            {"contract__control_hz": 1e-300},
            r"control_hz must be a number from 0\.01 to 10000 \(got 1e-300\)",
        ),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_at_once(
    altered: Callable[..., Path], changes: dict[str, object], message: str
) -> None:
    folder = altered(**changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(ValueError, match=message):
        load_policy(folder)
    assert time.process_time() - start < 10.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # KiB


@pytest.mark.slow
def test_a_description_of_very_many_keys_is_refused_at_once(altered: Callable[..., Path]) -> None:
    file = (folder := altered()) / "checkpoint.yaml"
    keys = "".join(f"key{number}: {number}\n" for number in range(200_000))
    file.write_text(file.read_text() + keys)
    start = time.process_time()
    with pytest.raises(ValueError, match=r"checkpoint\.yaml .* more than 100000 entries"):
        load_policy(folder)
    assert time.process_time() - start < 20.0


@pytest.mark.parametrize("name", ["hand_over_banana", "kuka_pick"])
def test_shipped_checkpoints_are_within_their_bounds(name: str) -> None:
    assert (SHIPPED / name).is_dir()
    assert load_policy(name).contract.control_hz == 50.0


def test_weights_without_a_readable_header_are_refused(altered: Callable[..., Path]) -> None:
    folder = altered()
    (folder / "weights.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(ValueError, match=r"weights\.safetensors cannot be read as safetensors"):
        load_policy(folder)
