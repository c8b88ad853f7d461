"""Tasks that are done when all props are inside their goal, released and at rest."""

from abc import abstractmethod

import numpy as np
from dm_control import mjcf

from stringline.sim.tasks.success import ContactState
from stringline.sim.tasks.tabletop import TabletopTask


class GoalTask(TabletopTask):
    """A task with a goal that is a predicate of geometry.

    Success: the goal is reached, no arm touches any prop, and all props are at rest, for half a
    second. The strict judge does not count props that were dropped (`handling.py`). Subclasses draw
    the start in `place_props` and define the goal and the stages.
    """

    @abstractmethod
    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns by geometry alone whether everything is inside its goal."""

    @abstractmethod
    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the current stage, below success; called after each control period."""

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Updates success and stage."""
        contacts = self.contact_state(physics)
        stage = self.progress(physics, contacts)
        put_down = self.put_down(physics, contacts)
        released = not contacts.by_any_arm(self.props) and self.reached(physics)
        self.success = self.has_lasted(released and put_down and self.at_rest(physics), physics)
        self.stage = max(self.stage, len(self.stages) - 1 if self.success else stage)
