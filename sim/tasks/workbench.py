"""The arena of all tasks: a table and a light."""

from dm_control import composer

from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN, SCENERY
from stringline.sim.rendering.rendering import set_flat_rendering
from stringline.sim.robots.workcells import Workcell

PHYSICS_SECONDS = 0.002
TABLE_COLOUR = (0.13, 0.15, 0.19, 1.0)


class Workbench(composer.Arena):
    """A dark table, whose top is the plane z = 0 of the base frame, and one light."""

    def _build(self, cell: Workcell, name: str = "workbench") -> None:
        super()._build(name)
        root = self.mjcf_model
        root.compiler.angle = "radian"
        root.option.timestep = PHYSICS_SECONDS
        root.option.cone = "elliptic"
        root.option.impratio = 10
        root.option.integrator = "implicitfast"
        root.option.flag.multiccd = "enable"
        set_flat_rendering(root)
        root.worldbody.add(
            "light",
            directional=True,
            pos=(0, 0, 2),
            dir=(0.2, 0.4, -1),
            diffuse=(0.5, 0.5, 0.5),
            castshadow=False,
        )
        self.table = root.worldbody.add("body", name="table")
        drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN}
        top = {"pos": (*cell.table_centre, -0.02), "size": (*cell.table_half, 0.02)}
        self.table.add("geom", name="table_top", type="box", rgba=TABLE_COLOUR, **top, **drawn)
        # Contacts of round shapes with a plane are exact and cheap; no prop leaves the table.
        self.table.add(
            "geom",
            name="table",
            type="plane",
            size=(2, 2, 0.1),
            contype=SCENERY,
            conaffinity=0,
            condim=3,
            group=HIDDEN,
        )
