"""Objects to grasp, one for each of 24 forms, from which the tasks of the KUKA cell draw."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from stringline.datasets.embodiments.transforms import quaternion
from stringline.sim.props import forms
from stringline.sim.props.forms import Form
from stringline.sim.props.graspable import DENSITY, HEAVIEST_KG, LIGHTEST_KG, Graspable
from stringline.sim.props.prop import CONTACT, FLAT_CONTACT, Colour

FORMS: Mapping[str, tuple[Form, Colour]] = MappingProxyType(
    {
        "cube": (forms.block(0.045, 0.045, 0.045), (0.85, 0.12, 0.10, 1.0)),
        "brick": (forms.block(0.09, 0.045, 0.035), (0.80, 0.38, 0.18, 1.0)),
        "beam": (forms.block(0.15, 0.03, 0.03), (0.95, 0.78, 0.15, 1.0)),
        "tile": (forms.block(0.085, 0.085, 0.024), (0.90, 0.90, 0.86, 1.0)),
        "tower": (forms.block(0.04, 0.05, 0.1), (0.12, 0.35, 0.85, 1.0)),
        "can": (forms.pillar(0.033, 0.09), (0.15, 0.65, 0.30, 1.0)),
        "puck": (forms.pillar(0.04, 0.03), (0.95, 0.45, 0.08, 1.0)),
        "post": (forms.pillar(0.02, 0.1), (0.60, 0.20, 0.75, 1.0)),
        "roller": (forms.roller(0.024, 0.11), (0.10, 0.70, 0.75, 1.0)),
        "stick": (forms.roller(0.016, 0.15), (0.72, 0.52, 0.30, 1.0)),
        "ball": (forms.ball(0.028), (0.93, 0.30, 0.50, 1.0)),
        "angle": (
            forms.plan(
                0.032,
                [(0, 0, 0.1, 0.03), (0.035, 0.05, 0.03, 0.07)],
                [(-0.028, 0, "y"), (-0.01, 0, "y"), (0.035, 0.06, "x")],
            ),
            (0.55, 0.75, 0.15, 1.0),
        ),
        "channel": (
            forms.plan(
                0.032,
                [(0, 0, 0.12, 0.028), (-0.046, 0.046, 0.028, 0.064), (0.046, 0.046, 0.028, 0.064)],
                [(0, 0, "y"), (-0.046, 0.055, "x"), (0.046, 0.055, "x")],
            ),
            (0.20, 0.55, 0.90, 1.0),
        ),
        "tee": (
            forms.plan(
                0.03,
                [(0, 0, 0.11, 0.03), (0, 0.05, 0.03, 0.07)],
                [(-0.035, 0, "y"), (0.035, 0, "y"), (0, 0.055, "x")],
            ),
            (0.80, 0.70, 0.20, 1.0),
        ),
        "cross": (
            forms.plan(
                0.03,
                [(0, 0, 0.13, 0.03), (0, 0.04, 0.03, 0.05), (0, -0.04, 0.03, 0.05)],
                [(-0.045, 0, "y"), (0.045, 0, "y"), (0, 0.05, "x"), (0, -0.05, "x")],
            ),
            (0.95, 0.95, 0.30, 1.0),
        ),
        "arc": (forms.arc(0.017, 0.16, 0.8), (0.98, 0.83, 0.08, 1.0)),
        "hook": (forms.arc(0.015, 0.045, 2.6, pieces=8), (0.45, 0.30, 0.85, 1.0)),
        "tube": (forms.tube(0.036, 0.07, 0.006), (0.25, 0.80, 0.55, 1.0)),
        "ring": (forms.tube(0.042, 0.028, 0.009), (0.90, 0.20, 0.30, 1.0)),
        "frame": (forms.frame(0.08, 0.04, 0.009), (0.95, 0.60, 0.35, 1.0)),
        "cup": (forms.tube(0.036, 0.08, 0.005, floor=0.006), (0.55, 0.85, 0.95, 1.0)),
        "arch": (forms.arch(0.1, 0.035, 0.06, 0.024), (0.85, 0.25, 0.65, 1.0)),
        "mallet": (forms.mallet(0.1, 0.014, (0.035, 0.07)), (0.60, 0.35, 0.15, 1.0)),
        "bottle": (forms.bottle(0.03, 0.11, 0.015, 0.035), (0.10, 0.45, 0.35, 1.0)),
    }
)


class GraspObject(Graspable):
    """An object of one of the forms."""

    def _build(self, name: str) -> None:
        """Builds the object of a name in `FORMS`."""
        form, colour = FORMS[name]
        self.holds = form.holds
        balls = [part.balls() for part in form.parts]
        self.points, self.radii = (np.concatenate(arrays) for arrays in zip(*balls, strict=True))
        self._begin(name, float((np.linalg.norm(self.points, axis=1) + self.radii).max()))
        volume = sum(part.volume for part in form.parts)
        mass = float(np.clip(DENSITY * volume, LIGHTEST_KG, HEAVIEST_KG))
        for part in form.parts:
            shape = {"type": part.kind, "size": part.size, "rgba": colour}
            place = {"pos": part.position, "quat": quaternion(part.turn)}
            contact = FLAT_CONTACT if part.kind == "box" else CONTACT
            mass_share = mass * part.volume / volume
            self.body.add("geom", mass=mass_share, **shape, **place, **contact)
