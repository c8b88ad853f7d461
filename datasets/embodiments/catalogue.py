"""The embodiments with known kinematics, by their name in contracts."""

from collections.abc import Mapping
from types import MappingProxyType

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.gym_aloha import GYM_ALOHA
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL

EMBODIMENTS: Mapping[str, Embodiment] = MappingProxyType(
    {body.name: body for body in (ALOHA, GYM_ALOHA, IIWA14, IIWA14_BIMANUAL)}
)
