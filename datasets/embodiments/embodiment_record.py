"""Embodiments by name, and as plain numbers, which contracts of stores and checkpoints keep.

With these numbers a store can be read, and a checkpoint can run, without the URDF or MJCF file.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import (
    CapsuleMount,
    Chain,
    Embodiment,
    JointSpec,
    Link,
)
from stringline.datasets.embodiments.gym_aloha import GYM_ALOHA
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion, rotation_of

EMBODIMENTS: Mapping[str, Embodiment] = MappingProxyType(
    {body.name: body for body in (ALOHA, GYM_ALOHA, IIWA14, IIWA14_BIMANUAL)}
)


_DECIMALS = 9
_MOST_PARTS = 1000  # Joints, links or capsules of a record.


def record_of(embodiment: Embodiment) -> dict[str, Any]:
    """Returns joints, chains, capsules and home as lists, strings and numbers.

    Poses are seven numbers: position in metres, and unit quaternion wxyz. Numbers are rounded to 9
    decimals, so records that two processors have computed from the same file are equal.
    """
    record = {
        "joints": [
            {
                "name": joint.name,
                "arm": joint.arm,
                "kind": joint.kind,
                "limits": [float(joint.lower), float(joint.upper)],
                "velocity": float(joint.velocity),
                "effort": float(joint.effort),
            }
            for joint in embodiment.joints
        ],
        "chains": [
            {
                "arm": chain.arm,
                "T_base_root": _seven(chain.T_base_root),
                "links": [
                    {
                        "name": link.name,
                        "T_parent_link": _seven(link.T_parent_link),
                        "axis": [float(value) for value in link.axis],
                    }
                    for link in chain.links
                ],
                "T_last_gripper": _seven(chain.T_last_gripper),
            }
            for chain in embodiment.chains
        ],
        "capsules": [
            {
                "link": mount.link,
                "start": mount.start.tolist(),
                "end": mount.end.tolist(),
                "radius": float(mount.radius),
                "per_opening": mount.per_opening.tolist(),
            }
            for mount in embodiment.capsule_mounts
        ],
        "home": [float(value) for value in embodiment.home],
    }
    return {name: _rounded(part) for name, part in record.items()}


def _rounded(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        return {name: _rounded(each) for name, each in plain.items()}
    if isinstance(plain, list):
        return [_rounded(each) for each in plain]
    return round(plain, _DECIMALS) + 0.0 if isinstance(plain, float) else plain


def from_record(name: str, base_frame: str, record: Mapping[str, Any]) -> Embodiment:
    """Builds an embodiment from the result of `record_of`.

    Raises:
        ValueError: A part is missing, or has another form.
    """
    try:
        most = max(len(record[key]) for key in ("joints", "chains", "capsules", "home"))
        if most > _MOST_PARTS:
            raise ValueError(f"it has {most} parts of a kind; allowed: {_MOST_PARTS}")
        joints = tuple(
            JointSpec(
                str(joint["name"]),
                str(joint["arm"]),
                joint["kind"],
                *_numbers(joint["limits"], 2).tolist(),
                *_numbers([joint["velocity"], joint["effort"]], 2).tolist(),
            )
            for joint in record["joints"]
        )
        chains = tuple(
            Chain(
                str(chain["arm"]),
                _pose(chain["T_base_root"]),
                tuple(
                    Link(str(link["name"]), _pose(link["T_parent_link"]), _numbers(link["axis"], 3))
                    for link in chain["links"]
                ),
                _pose(chain["T_last_gripper"]),
            )
            for chain in record["chains"]
        )
        capsules = tuple(
            CapsuleMount(
                int(mount["link"]),
                _numbers(mount["start"], 3),
                _numbers(mount["end"], 3),
                float(_numbers([mount["radius"]], 1)[0]),
                _numbers(mount["per_opening"], 3),
            )
            for mount in record["capsules"]
        )
        home = _numbers(record["home"], len(joints))
        found = Embodiment(name, base_frame, joints, chains, (), capsules, home)
        _check(found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"The kinematics of {name!r} are invalid: {error}.") from error
    return found


def _check(embodiment: Embodiment) -> None:
    kinds = {joint.kind for joint in embodiment.joints}
    if not kinds <= {"revolute", "gripper"}:
        raise ValueError(f"joints are of the kinds {sorted(kinds)}; allowed: revolute and gripper")
    for joint in embodiment.joints:
        if joint.arm not in embodiment.arms or joint.lower > joint.upper:
            raise ValueError(f"the joint {joint.name!r} has another arm, or swapped limits")
    for chain in embodiment.chains:
        if len(chain.links) != len(embodiment.revolute_joints[chain.arm]) or not chain.links:
            raise ValueError(
                f"the arm {chain.arm!r} must have one link for each of its revolute joints"
            )
        for mount in embodiment.capsule_mounts:
            if not -1 <= mount.link < len(chain.links) or mount.radius < 0:
                raise ValueError(f"a capsule is at link {mount.link} of {len(chain.links)}")


def embodiment_of(contract: Contract) -> Embodiment | None:
    """Returns the embodiment of a contract: of its own kinematics, or of its name.

    Returns:
        None if the contract has no kinematics, and its name is that of no built-in robot.

    Raises:
        ValueError: The kinematics of the contract are invalid.
    """
    if contract.kinematics is None:
        return EMBODIMENTS.get(contract.embodiment)
    return _recorded(contract.embodiment, contract.base_frame, json.dumps(contract.kinematics))


@lru_cache(16)
def _recorded(name: str, base_frame: str, record: str) -> Embodiment:
    return from_record(name, base_frame, json.loads(record))


def _seven(transform: Matrix) -> list[float]:
    return [*transform[:3, 3].tolist(), *quaternion(transform[:3, :3]).tolist()]


def _pose(numbers: Any) -> Matrix:
    found = _numbers(numbers, 7)
    length = float(np.linalg.norm(found[3:]))
    if abs(length - 1) > 1e-6:
        raise ValueError(f"a quaternion has length {length:g}; allowed: 1")
    return pose(found[:3], rotation_of(found[3:] / length))


def _numbers(values: Any, count: int) -> Matrix:
    found = np.asarray(values, np.float64)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ValueError(f"{values!r} are not {count} finite numbers")
    return found
