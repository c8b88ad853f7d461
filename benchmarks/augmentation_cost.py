"""Cost of augmentation: processor time per training window.

    python benchmarks/augmentation_cost.py --json augmentation_cost.json

Names:
    augmentation/<choice>
        A window of four cameras of 128x128 pixels with colour, depth and segments, in batches of
        32, on one processor. Milliseconds of processor time, the best of the rounds; peer
        `standard`, ratio of times, in rounds that alternate.
"""

from functools import partial

import torch
from measurement import parser_of, row, write_rows
from simulation import alternating

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.contract.contract import Camera
from stringline.encoders.training.checkpoint import build

CHOICES = ("standard", "strong")
CAMERAS = tuple(Camera(f"camera_{number}", 128, 128, "simulated") for number in range(4))
WINDOWS = 32


def windows() -> dict[str, torch.Tensor]:
    """Returns a batch of random images."""
    random = torch.Generator().manual_seed(0)
    whole = partial(torch.randint, generator=random)
    matrix = torch.tensor([[120.0, 0, 64], [0, 120, 64], [0, 0, 1]])
    batch = {}
    for camera in CAMERAS:
        size = (WINDOWS, camera.height, camera.width)
        batch[f"rgb/{camera.name}"] = whole(0, 256, (*size, 3)).to(torch.uint8)
        batch[f"depth/{camera.name}"] = whole(400, 900, size).to(torch.uint16)
        batch[f"segmentation/{camera.name}"] = whole(0, 8, size).to(torch.uint8)
        batch[f"intrinsics/{camera.name}"] = matrix.expand(WINDOWS, 3, 3)
    return batch


def choice(name: str) -> Augmentation:
    """Builds a choice of the group `augmentation`."""
    built = build(completed(CONFIGS, f"augmentation/{name}"), torch.nn.Module)
    assert isinstance(built, Augmentation)
    return built


def main() -> None:
    """Prints and writes the results."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds, of which the best counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    batch = windows()
    runs = [
        partial(choice(name), batch, CAMERAS, torch.Generator().manual_seed(0)) for name in CHOICES
    ]
    times = alternating(runs, options.rounds)
    each = 1e3 / WINDOWS
    rows = [
        row(
            f"augmentation/{name}",
            each * found.processor,
            "ms",
            peer=CHOICES[0],
            ratio=found.processor / times[0].processor,
            wall=each * found.wall,
        )
        for name, found in zip(CHOICES, times, strict=True)
    ]
    for line in rows:
        print(f"{line['name']:<24} {line['value']:8.3f} ms   ratio {line['ratio']:.2f}")
    write_rows(rows, options.json)


if __name__ == "__main__":
    main()
