"""The cost of perception: the share of matching and losses in a step, and waiting for images.

    python benchmarks/perception.py --json perception.json

It draws rooms, then alternates steps of the 3D detector as it is trained with steps whose loss is
the mean of the predictions: the difference of the medians is the time of matching and losses. Then
it trains each kind of network for some steps by the loop of `stringline-perceive`, and reports the
share of the time in which the loop waits for images. The limits are 0.15 and 0.02.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measurement import Row, parser_of, row, write_rows
from omegaconf import OmegaConf
from torch import Tensor, nn

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.images.image_store import ImageStore
from stringline.encoders.perception.detector import Detector
from stringline.encoders.perception.perception_data import ImageBatches, PerceptionData
from stringline.encoders.perception.perception_network import PerceptionNetwork, build_network
from stringline.encoders.perception.perception_run import PerceptionSettings, run_perception
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.trainer import Trainer
from stringline.sim.generate import generate_images
from stringline.sim.scenes.scene_images import SceneSettings

LOSSES, WAITING = 0.15, 0.02
HEADS = ("detect3d", "detect2d", "retrieve")
PLANNED = PerceptionSettings(image_size=96, validation_images=0)
OPTIONS = (
    "coordinates=metric",
    "depth=channel",
    "head.image_encoder.embedding.patch=12",
)


class Recipe:
    """What `stringline-perceive` trains by a head."""

    def __init__(self, head: str, store: Path, steps: int) -> None:
        overrides = [f"head={head}", f"images={store}", f"trainer.steps={steps}", *OPTIONS]
        configuration = Configuration(
            (Path(stringline.__file__).parent / "configs").absolute(), "perceive", "perception.py"
        )
        composed = configuration.composed([*overrides, f"trainer.probe_every={steps}"])
        settings: Any = OmegaConf.to_container(composed, resolve=True)
        self.model: Mapping[str, Any] = settings["head"]
        self.trainer: Trainer = build(settings["trainer"])
        factory: Any = build({**settings["head"], "_partial_": True}, nn.Module)
        self.data = PerceptionData.of(ImageStore(store), "room", 0.2, 0, factory.func.needs)

    def network(self) -> PerceptionNetwork:
        """Returns a new network."""
        return build_network(self.model, PLANNED.contract(self.data))

    def waiting(self, folder: Path) -> float:
        """Returns the share of the time in which the training waits for images."""
        run_perception(self.model, self.data, self.trainer, folder, PLANNED)
        lines = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
        shares = [line["speed"]["waiting"] for line in lines if "speed" in line]
        return float(shares[-1])


def means(detector: Detector, batch: Mapping[str, Tensor]) -> Tensor:
    """Returns a loss without matching: the mean of all predictions."""
    found = detector.predict(batch, detector.contract.names)
    return found.logits.float().mean() + found.numbers.float().mean()


def share_of_losses(recipe: Recipe, rounds: int) -> tuple[float, float]:
    """Returns the share of matching and losses in a step, and the seconds of a step."""
    detector = recipe.network()
    assert isinstance(detector, Detector)
    trainer = recipe.trainer
    batches = ImageBatches(
        recipe.data.images, recipe.data.split.train, detector, trainer.batch_size, seed=0
    )
    optimiser = torch.optim.AdamW(detector.parameters())
    losses: dict[str, Callable[[Mapping[str, Tensor]], Tensor]] = {
        "all": detector.loss,
        "means": lambda batch: means(detector, batch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    for number in range(rounds):
        batch = batches.batch(number)
        for name, loss in losses.items():
            begun = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16, enabled=trainer.in_bf16()):
                value = loss(batch)
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
            seconds[name].append(time.perf_counter() - begun)
    whole, network = (median(each[1:]) for each in seconds.values())
    return 1 - network / whole, whole


def measured(store: Path, folder: Path, steps: int) -> list[Row]:
    """Returns the lines of results."""
    share, seconds = share_of_losses(Recipe("detect3d", store, steps), steps)
    rows = [row("matching_and_losses", share, "of a step", "limit", share / LOSSES, step_s=seconds)]
    for head in HEADS:
        share = Recipe(head, store, steps).waiting(folder / head)
        rows.append(row(f"{head}_waiting", share, "of the time", "limit", share / WAITING))
    return rows


def main() -> None:
    """Measures, and prints a line per measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=40, help="steps of each measurement")
    parser.add_argument("--images", type=int, default=480, help="images of rooms")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        store = Path(folder) / "rooms"
        generate_images(SceneSettings(kinds=("living_room",)), store, given.images, workers=1)
        rows = measured(store, Path(folder), given.steps)
    for line in rows:
        share = f"{line['value']:8.3f} {line['unit']}"
        print(f"{line['name']:24}{share}, {line['ratio']:.2f} of the limit")
    write_rows(rows, given.json)


if __name__ == "__main__":
    main()
