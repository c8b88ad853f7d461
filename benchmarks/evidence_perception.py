"""Cells of perception: encodings judged on classification, retrieval, detection and video.

After tables 1, 2 and 4 of STRING (arXiv 2502.02562), table 1 of ComRoPE (2506.03737) and table 4 of
LieRE (2406.10322), in small. A network is trained on one store of labelled images and measured on
held-out ones, see docs/perception.md. Tasks:

- `classify`: names of emoji, trained on two styles, tested on the third (1,599 images), with the
  studies of resolution, shuffled patches and offsets. The store needs the packages of npm that
  docs/images.md names, in the folder `node_modules` of `FOLDER`.
- `retrieve`: captions of 1,000 held-out rooms.
- `detect3d`: boxes of objects in living rooms; the test images have assets that are held out.
  `rgb` has columns and rows and no depth, `rgbd` metres and a depth channel. Departures from the
  published setting: z is up, and a box may be labelled with any yaw.
- `detect3d_names`: the same with names that are held out.
- `retrieve_living`: captions of the training images of `detect3d`, for the towers that one of its
  choices begins with.
- `video`: motions of which each is the reversal of another, in held-out rooms.

All cells of a task have the same number of steps.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence_recipe import RUNS, Question

FOLDER = RUNS / "perception"
PUBLISHED = "encoder.values=false"
ENCODINGS = {
    "none": ["encoder=none"],
    "learned": ["encoder=learned", "encoder.encoding.low=0.0", "encoder.encoding.high=1.0"],
    "rope_mixed": ["encoder=rope_mixed", PUBLISHED],
    "circulant": ["encoder=circulant", PUBLISHED],
    "cayley": ["encoder=cayley", PUBLISHED],
    "cayley_values": ["encoder=cayley", "encoder.values=true"],
    "comrope_ld": ["encoder=comrope_ld", PUBLISHED],
    "liere": ["encoder=liere", PUBLISHED],
}
COMPARED = ("cayley_values", "cayley", "rope_mixed", "none")
RGB = ["coordinates=grid", "depth=colours"]
# Rooms are ten times as large as a table.
RGBD = ["coordinates=metric", "coordinates.wavelengths=[0.5,16.0]", "depth=channel"]
ROOMS = ["image_size=96", "images_per_room=1", "count=16000"]
# Each is in 2 to 9 % of the images.
UNKNOWN = "held_out=[laptop,wine glass,table lamp,bench,alarm clock]"


@dataclass(frozen=True)
class Task:
    """One store, and how all cells of a task are trained on it.

    Attributes:
        head: `task=` of stringline-perceive.
        made: Command that makes the store, and its options.
        trained: Options of all cells.
        studies: `study=` of further measurements.
        shown: The measures of the table.
    """

    head: str
    made: tuple[str, tuple[str, ...]]
    trained: tuple[str, ...]
    shown: tuple[str, ...]
    studies: tuple[str, ...] = ()


LIVING = ("scenes", ("rooms=[living_room]", *ROOMS))
PATCHES = (
    "image_size=96",
    "head.image_encoder.embedding.patch=12",
    "frame=level",
    "trainer.weight_decay=0.1",
)
DETECTION = (*PATCHES, "head.symmetry=upright", "augmentation=light")
HELD_OUT = ("split=asset", "held_out=0.004")
RETRIEVAL = (*PATCHES, "head.pool=mean", "augmentation=captions", "head.text.length=32")
STEM = (
    "head.image_encoder.embedding._target_=stringline.ConvolutionalStem",
    "head.image_encoder.embedding.patch=16",
    "trainer.learning_rate=2e-3",
    "trainer.warmup_steps=200",
)
RECALLS = ("i2t_recall_at_1", "i2t_recall_at_10", "t2i_recall_at_1", "t2i_recall_at_10")
TASKS = {
    "classify": Task(
        "classify",
        ("data", ("images", "image_format=emoji", "image_size=64")),
        (
            "split=source",
            "held_out=[fluent]",
            "augmentation=classify",
            "coordinates=relative",
            "head.pool=mean",
            "head.label_smoothing=0.1",
            "head.image_encoder.embedding._target_=stringline.ConvolutionalStem",
            "image_size=48",
            "trainer.learning_rate=1.5e-3",
            "trainer.weight_decay=0.2",
            "trainer.warmup_steps=200",
        ),
        ("top1", "chance"),
        ("resolution", "shuffled_patches", "offset"),
    ),
    "retrieve": Task(
        "retrieve",
        ("scenes", ("seed=1", *ROOMS)),
        ("split=room", "held_out=0.0625", *RETRIEVAL, *STEM),
        RECALLS,
    ),
    "detect3d": Task(
        "detect3d",
        LIVING,
        (*HELD_OUT, *DETECTION),
        ("mean_iou", "constant_box_iou", "ap3d_25"),
    ),
    "retrieve_living": Task("retrieve", LIVING, (*HELD_OUT, *RETRIEVAL), RECALLS),
    "detect3d_names": Task(
        "detect3d",
        LIVING,
        ("split=name", UNKNOWN, *DETECTION),
        ("ap3d_known_names", "ap3d_unknown_names", "ap3d_permuted_unknown_names"),
    ),
    "video": Task(
        "video",
        ("scenes", ("kind=motions", "count=16000", "image_size=48")),
        (
            "split=room",
            "image_size=48",
            "head.pool=mean",
            "head.image_encoder.embedding._target_=stringline.ConvolutionalStem",
            "head.image_encoder.embedding.patch=16",
            "head.image_encoder.tubelet=2",
            "coordinates.places.grid=4",
            "head.image_encoder.frame_wavelengths=[4.0,64.0]",
            "augmentation=light",
        ),
        ("top1", "within_pair"),
        ("frame_order",),
    ),
}
BOXES = {
    f"{inputs}_{encoding}_{places}": [*given, *ENCODINGS[encoding], f"head.places={places}"]
    for inputs, given in (("rgbd", RGBD), ("rgb", RGB))
    for places in ("relative", "absolute")
    for encoding in COMPARED
}
FIRST = "rgbd_cayley_values_relative"
CORNERLESS, INITIALISED = f"{FIRST}_no_corners", f"{FIRST}_from_retrieval"
RGBD_ENCODINGS = {name: [*RGBD, *ENCODINGS[name]] for name in COMPARED}
CHOICES: dict[str, dict[str, list[str]]] = {
    "classify": ENCODINGS,
    "retrieve": RGBD_ENCODINGS | {"rgb_cayley_values": [*RGB, *ENCODINGS["cayley_values"]]},
    "detect3d": BOXES
    | {
        CORNERLESS: [*BOXES[FIRST], "head.corner_weight=0"],
        INITIALISED: BOXES[FIRST],
        f"{FIRST}_relative_loss": [*BOXES[FIRST], "head.relative_loss=true"],
        f"{FIRST}_published_labels": [*BOXES[FIRST], "head.symmetry=none", "frame=camera"],
    },
    "detect3d_names": {FIRST: BOXES[FIRST]},
    "retrieve_living": {"cayley_values": RGBD_ENCODINGS["cayley_values"]},
    "video": {name: ENCODINGS[name] for name in COMPARED},
}
REFERENCES = {
    "classify": "cayley",
    "retrieve": "cayley_values",
    "detect3d": FIRST,
    "detect3d_names": FIRST,
    "retrieve_living": "cayley_values",
    "video": "cayley_values",
}
# Steps, and images or clips per step.
BUDGETS = {
    "classify": (4000, 96),
    "retrieve": (3500, 128),
    "detect3d": (2500, 48),
    "detect3d_names": (5000, 48),
    "retrieve_living": (2000, 128),
    "video": (3000, 48),
}


@dataclass(frozen=True)
class PerceptionCell(Question):
    """One training of one choice.

    Attributes:
        perception: One of `TASKS`.
        choice: One of `CHOICES` of the task.
        seed: Seed of the training.
        scale: `small`.
    """

    perception: str
    choice: str
    seed: int
    scale: str = "small"

    @property
    def name(self) -> str:
        """Path of the cell, which never changes."""
        return f"perception/{self.perception}/{self.choice}/{self.seed}/{self.scale}"

    @property
    def folder(self) -> Path:
        """Folder of its run."""
        return RUNS / self.name

    @property
    def checkpoint(self) -> Path:
        """The measured network."""
        return self.folder / "checkpoint"

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of the store and of the training, plain data."""
        towers = {"initialise_from": self._towers.name} if self._towers else {}
        return {"made": list(self._task.made[1]), "train": self._trained, **towers}

    @property
    def _task(self) -> Task:
        return TASKS[self.perception]

    @property
    def _towers(self) -> "PerceptionCell | None":
        """The cell that this one begins with."""
        if self.choice != INITIALISED:
            return None
        return PerceptionCell("retrieve_living", "cayley_values", self.seed, self.scale)

    @property
    def _store(self) -> Path:
        """The store, which all cells of the same images share."""
        shared = [name for name, task in TASKS.items() if task.made == self._task.made]
        return FOLDER / f"{shared[0]}_images"

    @property
    def _trained(self) -> list[str]:
        steps, batch = BUDGETS[self.perception]
        return [
            f"task={self._task.head}",
            *self._task.trained,
            *CHOICES[self.perception][self.choice],
            "trainer.precision=bf16",
            f"trainer.steps={steps}",
            f"trainer.batch_size={batch}",
            f"trainer.seed={self.seed}",
        ]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell: the store if it is missing, training, studies."""
        verb, options = self._task.made
        if not self._store.exists():
            where = (
                [f"path={FOLDER / 'node_modules'}", f"store={self._store}"]
                if verb == "data"
                else [f"output={self._store}"]
            )
            yield verb, [*options, *where]
        given = [*self._trained, f"images={self._store}", f"output={self.folder}"]
        if self._towers:
            if not self._towers.checkpoint.exists():
                raise SystemExit(f"{self.name} begins with {self._towers.name}; run that first.")
            given.append(f"initialise_from={self._towers.checkpoint}")
        yield "perceive", given
        for study in self._task.studies:
            yield "perceive", [*given, f"study={study}"]

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return asdict(self)

    def outcomes(self) -> dict[str, object]:
        """Returns the measures, the rows of the studies, and the values of each image."""
        found = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        each = {
            name: [round(value, 4) for value in values] for name, values in found["each"].items()
        }
        return {
            "measures": found["measures"],
            "studies": found["studies"],
            "images": found["images"],
            "parameters": found["parameters"],
            "each": each,
        }


def perception_cells() -> list[PerceptionCell]:
    """Returns all cells, the most informative first: references, all choices, further seeds."""
    firsts = [PerceptionCell(task, REFERENCES[task], 0) for task in TASKS]
    once = [PerceptionCell(task, name, 0) for task, names in CHOICES.items() for name in names]
    thrice = [
        PerceptionCell(task, name, seed)
        for task, names in CHOICES.items()
        for seed in (1, 2)
        for name in names
    ]
    return list(dict.fromkeys([*firsts, *once, *thrice]))
