"""Evidence in cells: one question each, by a fixed recipe, collected piece by piece on whatever machine there is.

    python benchmarks/evidence.py                 runs the next missing cell, then writes it down
    python benchmarks/evidence.py --list          shows all cells and which are there
    python benchmarks/evidence.py --cell hand_over_banana/cayley_values/metric/0/small
    python benchmarks/evidence.py --write         writes docs/results.md anew from docs/results.jsonl, and runs nothing

A cell is a task, an encoding, coordinates, a training seed, a scale and a kind of policy (diffusion, unless its name ends with
another, such as hand_over_banana/cayley_values/metric/0/small/flow). It runs three commands that anybody can type:
stringline-collect (once per task and scale), stringline-train, and stringline-eval on 100 seeds that no demonstration has. It
leaves in runs/evidence/<cell> the checkpoint (at most 16 MiB), the films and the report, and appends one line to
docs/results.jsonl: recipe, success of each seed, seconds, machine and versions. Stopped, it continues where it was.
`small` takes about a quarter of an hour on two quiet CPU cores; `large` is meant for a GPU, at most nine minutes there.
"""

import argparse
import difflib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence_page import write_page

from stringline.sim.machine import machine_kind, versions

ROOT = Path(__file__).resolve().parent.parent
RUNS, RESULTS = ROOT / "runs" / "evidence", ROOT / "docs" / "results.jsonl"
FOLDER = Path(__file__).resolve().parent  # Holds a file named like Python's own package `encodings`: never on a child's path.
LARGEST_CHECKPOINT = 16 * 2**20
SEEDS, FIRST_SEED = 100, 1_000_000
TASKS = ("hand_over_banana", "bowl_on_rack", "mug_on_plate")
PEERS_TASK = "gym_aloha_transfer_cube"  # In gym-aloha's own world; needs the extra `peers`.
ENCODINGS = {
    "none": "encoder=none",
    "rope_mixed": "encoder=rope_mixed encoder.values=false",
    "rope_mixed_values": "encoder=rope_mixed encoder.values=true",
    "circulant": "encoder=circulant encoder.values=false",
    "circulant_values": "encoder=circulant encoder.values=true",
    "cayley": "encoder=cayley encoder.values=false",
    "cayley_values": "encoder=cayley encoder.values=true",
}
# All kinds see the same memory, and are trained and evaluated by the same recipe. ACT has its published chunk, divergence and
# layers, and the width and heads of the others: its published one has 34 million parameters, not to be trained on a CPU. The energy's
# proposal takes four steps and two negatives in place of eight and four, which in training would take three times as long.
POLICIES = {
    "diffusion": "policy=diffusion",
    "flow": "policy=flow",
    "act": "policy=act policy/memory=places policy.dim=128 policy.heads=4 policy.feed_forward=512",
    "energy": "policy=energy policy.negatives=2 policy.sampling_steps=4",
}
COORDINATES = ("metric", "grid")
COMMANDS = {"collect": "stringline.sim.collect", "train": "stringline.sim.train", "eval": "stringline.sim.evaluate"}


@dataclass(frozen=True)
class Scale:
    """How much is collected and trained.

    Attributes:
        episodes: Demonstrations, of the seeds from 10,000 on.
        steps: Training steps.
        batch: Windows in a step.
    """

    episodes: int
    steps: int
    batch: int


SCALES = {"small": Scale(100, 1550, 48), "large": Scale(400, 8000, 128)}


@dataclass(frozen=True)
class Cell:
    """One question."""

    task: str
    encoding: str
    coordinates: str
    seed: int
    scale: str
    policy: str = "diffusion"

    @property
    def name(self) -> str:
        """Its path, stable for ever; the cells of diffusion are older than the choice of a policy."""
        kind = "" if self.policy == "diffusion" else f"/{self.policy}"
        return f"{self.task}/{self.encoding}/{self.coordinates}/{self.seed}/{self.scale}{kind}"

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands that answer it, each with what it is given."""
        scale, demonstrations = SCALES[self.scale], RUNS / self.task / f"demonstrations_{self.scale}"
        yield "collect", [f"task={self.task}", f"output={demonstrations}", f"episodes={scale.episodes}", *COLLECTED]
        yield (
            "train",
            [
                f"dataset.path={demonstrations}",
                f"output={self.folder / 'training'}",
                *POLICIES[self.policy].split(),
                *ENCODINGS[self.encoding].split(),
                f"coordinates={self.coordinates}",
                f"trainer.steps={scale.steps}",
                f"trainer.batch_size={scale.batch}",
                f"trainer.seed={self.seed}",
                *TRAINED,
            ],
        )
        yield (
            "eval",
            [
                f"task={self.task}",
                f"checkpoint={self.folder / 'training' / 'checkpoint'}",
                f"output={self.folder / 'evaluation'}",
                f"seeds={SEEDS}",
                f"first_seed={FIRST_SEED}",
                *EVALUATED,
            ],
        )

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return RUNS / self.name


# The recipe of the demonstration: see docs/results.md for what early windows and hidden joints are good for.
COLLECTED = ["first_seed=10000", "noise_rad=0.03", "varied=false"]
TRAINED = ["dataset.early_s=1.6", "dataset.early_factor=2.0"]
EVALUATED = ["execute_steps=24"]


def cells() -> list[Cell]:
    """Returns the questions, the most telling first: encodings, kinds of policies, then coordinates, seeds, tasks and scale."""
    compared = ("cayley_values", "cayley", "rope_mixed", "none", "rope_mixed_values", "circulant", "circulant_values")
    first = [Cell(TASKS[0], encoding, "metric", 0, "small") for encoding in compared[:4]]
    kinds = [Cell(TASKS[0], compared[0], "metric", 0, "small", policy) for policy in ("flow", "act", "energy")]
    small, large = (
        [
            Cell(task, encoding, coordinates, seed, scale)
            for seed, task, coordinates, encoding in itertools.product((0, 1, 2), TASKS, COORDINATES, compared)
            if not (encoding == "none" and coordinates == "grid")  # Without an encoding coordinates are not looked at.
        ]
        for scale in ("small", "large")
    )
    peers = [Cell(PEERS_TASK, compared[0], "metric", 0, "large", policy) for policy in ("diffusion", "flow")]
    return list(dict.fromkeys([*first, *kinds, *small, *peers, *large]))


def known() -> dict[str, dict[str, object]]:
    """Returns what has been measured, by name."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def answer(cell: Cell) -> dict[str, object]:
    """Runs what is not yet done of a cell and returns its line.

    Raises:
        SystemExit: A command failed; it has said why.
    """
    took: dict[str, float] = {}
    for verb, given in cell.commands():
        print(f"\n$ stringline-{verb} {' '.join(given)}", flush=True)
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-c", f"from {COMMANDS[verb]} import main; main()", *given], env=environment())
        if done.returncode:
            raise SystemExit(done.returncode)
        took[verb] = round(time.monotonic() - start, 1)
    size = sum(file.stat().st_size for file in (cell.folder / "training" / "checkpoint").rglob("*") if file.is_file())
    if size > LARGEST_CHECKPOINT:
        raise SystemExit(f"The checkpoint of {cell.name} has {size} bytes; allowed: {LARGEST_CHECKPOINT}.")
    results = [json.loads(line) for line in (cell.folder / "evaluation" / "results.jsonl").read_text().splitlines()]
    by_seed = {result["seed"]: bool(result["success"]) for result in results if "seed" in result}
    trained = [*POLICIES[cell.policy].split(), *TRAINED]
    return {
        "name": cell.name,
        **asdict(cell),
        "recipe": asdict(SCALES[cell.scale]) | {"collect": COLLECTED, "train": trained, "eval": EVALUATED},
        "first_seed": FIRST_SEED,
        "success": "".join(str(int(by_seed[FIRST_SEED + index])) for index in range(SEEDS)),
        "seconds": took,
        "checkpoint_bytes": size,
        "machine": machine_kind(),
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def environment() -> dict[str, str]:
    """Returns that of the commands: their modules are found however this script's were."""
    path = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).resolve() != FOLDER)
    return os.environ | {"PYTHONPATH": path}


def chosen(name: str | None, everything: Sequence[Cell], found: dict[str, dict[str, object]]) -> Cell | None:
    """Returns the cell of that name, or the next missing one.

    Raises:
        ValueError: There is none of that name.
    """
    by_name = {cell.name: cell for cell in everything}
    if name is None:
        return next((cell for cell in everything if cell.name not in found), None)
    if name not in by_name:
        nearest = " or ".join(map(repr, difflib.get_close_matches(name, by_name)))
        raise ValueError(f"There is no cell {name!r}.{f' Did you mean {nearest}?' if nearest else ''} --list shows all.")
    return by_name[name]


def main() -> None:
    """Runs, lists or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", help="this one, instead of the next missing one")
    parser.add_argument("--list", action="store_true", help="show all cells")
    parser.add_argument("--write", action="store_true", help="write docs/results.md, run nothing")
    given = parser.parse_args()
    everything, found = cells(), known()
    if given.list:
        print("\n".join(f"{'done   ' if cell.name in found else 'missing'} {cell.name}" for cell in everything))
        return
    try:
        cell = None if given.write else chosen(given.cell, everything, found)
    except ValueError as error:
        parser.error(str(error))
    if cell is not None and cell.name in found:
        parser.error(f"{cell.name} is in {RESULTS} already; delete its line to measure it again.")
    if cell is not None:
        line = answer(cell)
        with RESULTS.open("a") as file:
            file.write(json.dumps(line) + "\n")
        found[cell.name] = line
    write_page(ROOT / "docs" / "results.md", list(found.values()))


if __name__ == "__main__":
    main()
