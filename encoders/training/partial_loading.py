"""Weights of one model as the start of another: all of them, some parts, or whatever fits."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from stringline.datasets.contract.arguments import unknown_name
from stringline.encoders.training.checkpoint import read_weights

MISFITS = "misfits"
_DEPTH = 2  # Parts of parts are offered as nearest names; what is below can be named, too.


@dataclass(frozen=True)
class Taken:
    """What became of the tensors, by the shortest names that say it: a part stands for all that is in it.

    Attributes:
        taken: Of the checkpoint, now in the model.
        fresh: Of the model, that start anew.
        left: Of the checkpoint, that were not wanted or did not fit.
    """

    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    left: tuple[str, ...]

    def __str__(self) -> str:
        """Lists all three."""
        listed = {"taken": self.taken, "starting anew": self.fresh, "not used": self.left}
        return "; ".join(
            f"{what}: {', '.join(names) or 'nothing'}" for what, names in listed.items()
        )


def take_weights(
    directory: Path, model: nn.Module, *, take: Sequence[str] = (), leave: Sequence[str] | str = ()
) -> Taken:
    """Fills parts of a model with the weights of a checkpoint; the others keep those that they have.

    Args:
        directory: The checkpoint, of this kind of model or of another one.
        model: To be filled.
        take: Names of parts, such as `memory` or `denoiser.blocks.0`; empty: all.
        leave: Names of parts that are not to be taken, or `misfits`: whatever the model has not, or
            has in another shape.

    Raises:
        ValueError: There is no part of such a name, nothing is left to take, or something does not
            fit. The message names the parts to leave.
    """
    wanted = model.state_dict()
    offered = _in_order(read_weights(directory), wanted)
    _check_names("take", take, offered)
    _check_names("leave", () if isinstance(leave, str) else leave, {**offered, **wanted})
    if isinstance(leave, str) and leave != MISFITS:
        raise ValueError(f"leave is {leave!r}; allowed: a list of parts, or {MISFITS!r}.")
    chosen = _inside(offered, take) if take else set(offered)
    chosen -= _inside(offered, () if isinstance(leave, str) else leave)
    misfits = {
        name: why for name in offered if name in chosen and (why := _misfit(name, offered, wanted))
    }
    units = {_unit(name, offered) for name in misfits}
    if misfits and leave != MISFITS:
        raise ValueError(
            _explained(directory, misfits, [*leave, *collapsed(_inside(offered, units), offered)])
        )
    chosen -= _inside(offered, units)
    if not chosen:
        raise ValueError(
            f"Nothing is left to take from {directory}: take is {list(take)}, leave is {leave}."
        )
    model.load_state_dict({name: offered[name] for name in chosen}, strict=False)
    return Taken(
        taken=collapsed(chosen, offered),
        fresh=collapsed(wanted.keys() - chosen, wanted),
        left=collapsed(offered.keys() - chosen, offered),
    )


def _in_order(tensors: Mapping[str, Tensor], like: Iterable[str]) -> dict[str, Tensor]:
    """Returns tensors in the order of other names, what is not among those at the end."""
    return {name: tensors[name] for name in [*(name for name in like if name in tensors), *tensors]}


def collapsed(
    names: Collection[str], everything: Iterable[str], above: str = ""
) -> tuple[str, ...]:
    """Returns the fewest parts that hold these names and no others.

    Args:
        names: Of tensors, such as `memory.blocks.0.norm.weight`.
        everything: Names of all tensors that there are.
        above: The part to look into; all.
    """
    inside = [name for name in everything if not above or _within(name, (above,))]
    found = [name for name in inside if name in names]
    if not found or (above and len(found) == len(inside)):
        return (above,) if found else ()
    depth = above.count(".") + 1 if above else 0
    parts = dict.fromkeys(".".join(name.split(".")[: depth + 1]) for name in inside)
    return tuple(part for below in parts for part in collapsed(names, inside, below))


def _within(name: str, parts: Iterable[str]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def _inside(names: Iterable[str], parts: Collection[str]) -> set[str]:
    return {name for name in names if _within(name, parts)}


def _unit(name: str, names: Iterable[str]) -> str:
    """Returns the layer of a tensor, or the tensor itself where it is one of a larger module: half a layer is no use."""
    layer = name.rpartition(".")[0]
    flat = layer and all(
        other.count(".") == name.count(".") for other in names if _within(other, (layer,))
    )
    return layer if flat else name


def _check_names(setting: str, parts: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
    for part in parts:
        if not any(_within(name, (part,)) for name in tensors):
            offered = {
                ".".join(name.split(".")[:depth])
                for name in tensors
                for depth in range(1, _DEPTH + 1)
            }
            raise unknown_name(f"part of the model to {setting}", part, offered)


def _misfit(name: str, offered: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Says why a tensor cannot be taken, nothing if it can."""
    if name not in wanted:
        return "is not in this model"
    got = tuple(offered[name].shape)
    want = tuple(wanted[name].shape)
    return "" if got == want else f"is {got} there and {want} here"


def _explained(directory: Path, misfits: Mapping[str, str], leave: Iterable[str]) -> str:
    listed = "; ".join(f"{name} {why}" for name, why in list(misfits.items())[:4])
    more = f"; and {len(misfits) - 4} more" if len(misfits) > 4 else ""
    return (
        f"The weights of {directory} do not fit this model: {listed}{more}. "
        f"To let those parts start anew: leave=[{','.join(leave)}], or leave={MISFITS}."
    )
