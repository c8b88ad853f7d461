"""Tasks of perception: their stores, how networks are trained on them, and what is compared.

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
- `detect3d_tables`: boxes of objects on tables, in the size of tasks of ALOHA, with the image
  encoder that policies have by default; policies begin with it (`evidence_appearance.py`).
"""

from dataclasses import dataclass

from evidence_recipe import RUNS

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
ONE_OF_EACH = ["images_per_room=1", "count=16000"]
ROOMS = ["image_size=96", *ONE_OF_EACH]
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
UPRIGHT = ("head.symmetry=upright", "augmentation=light")
DETECTION = (*PATCHES, *UPRIGHT)
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
    "detect3d_tables": Task(
        "detect3d",
        ("scenes", ("rooms=[cluttered_table,tables,trays]", "image_size=128", *ONE_OF_EACH)),
        (
            "split=room",
            "held_out=0.0625",
            "image_size=128",
            "head.image_encoder.embedding._target_=stringline.ConvolutionalStem",
            "head.image_encoder.embedding.patch=16",
            "frame=level",
            "trainer.weight_decay=0.1",
            *UPRIGHT,
        ),
        ("mean_iou", "constant_box_iou", "ap3d_25"),
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
    # The rate of the text tower as OWL-ViT has it (Minderer et al., 2022): 2e-6 of 5e-5.
    "detect3d_names": {
        FIRST: BOXES[FIRST],
        INITIALISED: [*BOXES[FIRST], "trainer.learning_rate_factors={text: 0.04}"],
    },
    "retrieve_living": {"cayley_values": RGBD_ENCODINGS["cayley_values"]},
    "detect3d_tables": {
        "policy": ["encoder=cayley_per_head", "coordinates=metric", "depth=colours"]
    },
    "video": {name: ENCODINGS[name] for name in COMPARED}
    | {
        "cayley_values_frames": [*ENCODINGS["cayley_values"], "head.image_encoder.tubelet=1"],
    },
}
REFERENCES = {
    "classify": "cayley",
    "retrieve": "cayley_values",
    "detect3d": FIRST,
    "detect3d_names": FIRST,
    "retrieve_living": "cayley_values",
    "detect3d_tables": "policy",
    "video": "cayley_values",
}
# Steps, and images or clips per step.
BUDGETS = {
    "classify": (4000, 96),
    "retrieve": (3500, 128),
    "detect3d": (2500, 48),
    "detect3d_names": (5000, 48),
    "retrieve_living": (2000, 128),
    "detect3d_tables": (2500, 48),
    "video": (3000, 48),
}
