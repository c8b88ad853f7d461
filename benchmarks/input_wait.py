"""The share of the time of training in which it waits for data, as `data.py` measures it."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from omegaconf import OmegaConf
from torch import Tensor, nn

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build
from stringline.policies.checkpoints.load import build_policy
from stringline.sim.training.training_data import WindowBatches


class TimedBatches:
    """Batches with the time of waiting for them after the first one."""

    def __init__(self, batches: WindowBatches) -> None:
        self._batches = batches
        self.waited_s = 0.0
        self.started = 0.0

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches."""
        with contextlib.closing(
            self._batches.stream(first_step, last_step, process, processes)
        ) as stream:
            yield next(stream)
            self.started = time.perf_counter()
            while True:
                start = time.perf_counter()
                batch = next(stream, None)
                self.waited_s += time.perf_counter() - start
                if batch is None:
                    return
                yield batch


def measure_input_wait(
    store: EpisodeStore, folder: Path, steps: int, changes: Sequence[str]
) -> float:
    """Returns the share of training time after the first batch in which training waits for data."""
    overrides = [
        f"dataset.path={store.path}",
        f"trainer.steps={steps}",
        f"trainer.probe_every={steps}",
        "encoder=cayley",
        *changes,
    ]
    configuration = Configuration(
        (Path(stringline.__file__).parent / "configs").absolute(), "train", "data.py"
    )
    settings = OmegaConf.to_container(configuration.composed(overrides), resolve=True)
    assert isinstance(settings, dict)
    policy = build_policy(
        settings["policy"],
        store.episodes()[0].attributes.contract,
        Statistics.of_episodes(store.episodes()),
    )
    trainer = build(settings["trainer"])
    windows = Windows(
        store, chunk=policy.chunk, cameras=[camera.name for camera in policy.contract.cameras]
    )
    batches = TimedBatches(WindowBatches(windows, trainer.batch_size, seed=0))
    ended = []

    def end(model: nn.Module) -> None:
        ended.append(time.perf_counter())

    trainer.fit(policy, batches, folder, save_model=end)
    return batches.waited_s / (ended[0] - batches.started)
