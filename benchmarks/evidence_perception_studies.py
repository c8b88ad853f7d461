"""Studies of perception that need trainings of their own, beside the tasks of all cells.

    python benchmarks/evidence.py --under perception/sharing/ --all

Each study is a task with the images of another one (`evidence_perception_tasks.py`):

- `sharing`: one set of parameters for all heads and layers ("stem"), per layer, per head, or per
  head and layer (LieRE, Ostmeier et al., 2025, table 2).
- `block_size`: channels per block of ComRoPE, LieRE and Circulant-STRING (LieRE, figure 3a;
  ComRoPE, Yu et al., 2025, figure 6; STRING, appendix E).
- `perturbation`: coordinates disturbed in training, with other resolutions (ComRoPE, 4.3.3).
- `unrotated`: Circulant-STRING, of whose planes one in eight does not rotate, beside RoPE-Mixed
  with as many.
- `curve`: top-1 while training, and the steps to the last top-1 without encoding (LieRE, figure
  4b).
- `shares`: shares of the training images (LieRE, figure 3b), with equal steps.
- `inputs`: boxes by {RGB, RGB-D} and each encoding.
- `depth_start`: boxes by RGB-D, from towers that learned captions of RGB images; the 3D encoding
  begins with drawn or with zero frequencies.
- `detect2d`: boxes in the image.
- `stages`: stages of the scripted experts in the twelve tasks of ALOHA, unknown episodes.
"""

import evidence_perception_tasks as base
from evidence_perception_tasks import ENCODINGS, PUBLISHED, RGB, RGBD, Task

ROTATED = ("cayley", "rope_mixed", "liere")
SHARES = {
    "stem": (True, True),
    "layer": (True, False),
    "head": (False, True),
    "head_and_layer": (False, False),
}
BLOCKS = {
    "comrope_ld": (2, 4, 8),
    "comrope_ap": (2, 4, 8),
    "liere": (2, 4, 8, 16, 32),
    "circulant": (4, 8, 16, 32),
}
TRAINED_SHARES = (0.1, 0.25, 0.5, 1.0)
SIGMAS = (0.0, 0.5, 1.0)
# Boxes with and without relative values, and the towers that they begin with.
VALUED = {
    "": ("rgbd_cayley_values_relative", "rgb_cayley_values"),
    "_without_values": ("rgbd_cayley_relative", "rgb_cayley"),
}
STARTS: dict[str, list[str]] = {
    "zero": ["head.image_encoder.zero_frequencies=true"],
    "random": [],
    "scratch": [],
}
# A table of absolute places in metres covers a living room, that of columns and rows the image.
OTHERS = (
    "rope",
    "rope_in_learned_basis",
    "comrope_ap",
    "liere_commute",
    "tensor_product",
    "vision_llama",
    "sinusoidal",
)
EVERY = {name: given for name, given in ENCODINGS.items() if name != "learned"} | {
    name: [f"encoder={name}", PUBLISHED] for name in OTHERS
}
LEARNED = {"rgbd": (-6.0, 6.0), "rgb": (0.0, 8.0)}
INPUTS = {
    f"{inputs}_{name}": [*given, *encoding]
    for inputs, given in (("rgbd", RGBD), ("rgb", RGB))
    for name, encoding in (
        EVERY
        | {
            "learned": [
                "encoder=learned",
                f"encoder.encoding.low={LEARNED[inputs][0]}",
                f"encoder.encoding.high={LEARNED[inputs][1]}",
            ]
        }
    ).items()
}
# One change at a time: a depth channel without metres, and metres without it.
INPUTS["rgbd_columns_cayley"] = ["coordinates=grid", "depth=channel", *ENCODINGS["cayley"]]
INPUTS["rgb_metres_cayley"] = [*RGBD[:2], "depth=colours", *ENCODINGS["cayley"]]


def lower(flag: bool) -> str:
    """Returns a flag as YAML has it."""
    return str(flag).lower()


CLASSIFY = base.TASKS["classify"]
TASKS = base.TASKS | {
    "sharing": Task("classify", CLASSIFY.made, CLASSIFY.trained, ("top1",)),
    "block_size": Task("classify", CLASSIFY.made, CLASSIFY.trained, ("top1",)),
    "perturbation": Task("classify", CLASSIFY.made, CLASSIFY.trained, ("top1",), ("resolution",)),
    "unrotated": Task("classify", CLASSIFY.made, CLASSIFY.trained, ("top1",)),
    "curve": Task("classify", CLASSIFY.made, (*CLASSIFY.trained, "probe_images=1599"), ("top1",)),
    "shares": base.TASKS["retrieve"],
    "inputs": base.TASKS["detect3d"],
    "depth_start": base.TASKS["detect3d"],
    "detect2d": Task(
        "detect2d",
        base.LIVING,
        (*base.HELD_OUT, *base.PATCHES, "augmentation=light"),
        ("mean_iou", "ap2d", "ap2d_50"),
    ),
    "stages": Task(
        "video",
        ("scenes", ("kind=stages", "count=5000", "image_size=64")),
        (*base.TASKS["video"].trained, "image_size=64"),
        ("top1", "chance"),
        ("frame_order",),
    ),
}
CHOICES = base.CHOICES | {
    "sharing": {
        f"{name}_{shared}": [
            *ENCODINGS[name],
            f"encoder.encoding.share_heads={lower(heads)}",
            f"head.image_encoder.share_layers={lower(layers)}",
        ]
        for name in ROTATED
        for shared, (heads, layers) in SHARES.items()
    },
    "block_size": {
        f"{name}_{block}": [f"encoder={name}", PUBLISHED, f"encoder.encoding.block={block}"]
        for name, blocks in BLOCKS.items()
        for block in blocks
    },
    "perturbation": {
        f"{name}_{sigma:g}": [*ENCODINGS[name], f"coordinates.places.perturbation={sigma}"]
        for name in ("learned", "cayley", "comrope_ld")
        for sigma in SIGMAS
    },
    "unrotated": {
        "circulant": ENCODINGS["circulant"],
        "rope_mixed": ENCODINGS["rope_mixed"],
        "rope_mixed_unrotated": [*ENCODINGS["rope_mixed"], "encoder.encoding.still=0.125"],
    },
    "curve": {name: ENCODINGS[name] for name in ("none", "rope_mixed", "cayley", "liere")},
    "shares": {
        f"{name}_{share:g}": [*RGBD, *ENCODINGS[name], f"train_share={share}"]
        for name in ("cayley_values", "rope_mixed", "none")
        for share in TRAINED_SHARES
    },
    "inputs": INPUTS,
    "depth_start": {
        f"{name}{end}": [*base.BOXES[boxes], *STARTS[name]]
        for end, (boxes, _) in VALUED.items()
        for name in STARTS
    },
    "detect2d": {name: [*RGB, *ENCODINGS[name]] for name in base.COMPARED},
    "stages": {name: ENCODINGS[name] for name in base.COMPARED},
}
CHOICES["retrieve_living"] = base.CHOICES["retrieve_living"] | {
    f"rgb_{name}": [*RGB, *ENCODINGS[name]] for name in ("cayley_values", "cayley")
}
REFERENCES = base.REFERENCES | {
    "sharing": "cayley_stem",
    "block_size": "liere_8",
    "perturbation": "cayley_0",
    "unrotated": "circulant",
    "curve": "cayley",
    "shares": "cayley_values_1",
    "inputs": "rgbd_cayley_values",
    "depth_start": "zero",
    "detect2d": "cayley_values",
    "stages": "cayley_values",
}
BUDGETS = base.BUDGETS | {
    **dict.fromkeys(
        ("sharing", "block_size", "perturbation", "unrotated", "curve"), base.BUDGETS["classify"]
    ),
    "shares": base.BUDGETS["retrieve"],
    "stages": (2000, 48),
    **dict.fromkeys(("inputs", "depth_start", "detect2d"), base.BUDGETS["detect3d"]),
}
# The cell that a choice begins with, and what it does not take of it.
TOWERS = ("retrieve_living", "cayley_values")
INITIAL: dict[tuple[str, str], tuple[tuple[str, str], list[str]]] = {
    ("detect3d", base.INITIALISED): (TOWERS, []),
    ("detect3d_names", base.INITIALISED): (TOWERS, []),
    **{
        ("depth_start", f"{name}{end}"): (("retrieve_living", towers), ["exclude=mismatched"])
        for end, (_, towers) in VALUED.items()
        for name in ("zero", "random")
    },
}
