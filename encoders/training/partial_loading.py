"""Partial loading: initialises all or some parts of a model with the weights of a checkpoint."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.training.checkpoint import WEIGHTS, read_weights
from stringline.encoders.training.optimisation import part_names

CHECKPOINT = "initialise_from"
IMAGE_CONTRACT = "image_contract"
"""The entry of the description of a checkpoint that only networks of perception have."""
IMAGE_ENCODER = "image_encoder"
"""The part of a network of perception that a policy can take over."""


def is_perception(description: Mapping[str, Any]) -> bool:
    """Returns whether the description of a checkpoint is that of a network of perception."""
    return IMAGE_CONTRACT in description


@dataclass(frozen=True)
class InitialParts:
    """A checkpoint and the parts of it that initialise a new run.

    Attributes:
        checkpoint: Its folder or name.
        include: Parts to load, such as `observation_encoder`; empty: the default of the run.
        exclude: Parts that keep their initial weights, such as `denoiser.read_action`, or
            `mismatched`: all parts that do not fit.
    """

    checkpoint: str | Path
    include: Sequence[str] = ()
    exclude: Sequence[str] | str = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any], *further: str) -> Self | None:
        """Reads the settings `initialise_from`, `include`, `exclude` and further ones.

        Raises:
            ValueError: Parts are named without a checkpoint.
        """
        checkpoint = settings[CHECKPOINT]
        chosen = {name: settings[name] for name in ("include", "exclude", *further)}
        if checkpoint is None:
            if given := [name for name, value in chosen.items() if value]:
                raise ValueError(f"{given[0]} needs a checkpoint; add {CHECKPOINT}=CHECKPOINT.")
            return None
        if isinstance(chosen["include"], str):
            chosen["include"] = [chosen["include"]]
        return cls(checkpoint, **chosen)

    def described(self, digest: str) -> dict[str, Any]:
        """Returns the settings that decide the initial weights, as plain data."""
        return {
            "checkpoint": digest,
            "include": list(self.include),
            "exclude": self.exclude if isinstance(self.exclude, str) else list(self.exclude),
        }


MISMATCHED = "mismatched"


@dataclass(frozen=True)
class LoadedParts:
    """The result of partial loading; the name of a part stands for all tensors in it.

    Attributes:
        loaded: Parts of the model with the weights of the checkpoint.
        initialised: Parts of the model that keep their initial weights.
        unused: Parts of the checkpoint that were excluded or do not fit.
    """

    loaded: tuple[str, ...]
    initialised: tuple[str, ...]
    unused: tuple[str, ...]

    def __str__(self) -> str:
        """Lists all three."""
        return "; ".join(
            f"{what}: {', '.join(names) or 'nothing'}" for what, names in vars(self).items()
        )


@dataclass(frozen=True)
class RowNames:
    """The meaning of the rows of a tensor, such as the instruction of each token.

    Attributes:
        stored: Of the rows in the checkpoint; empty: none of them fits the model.
        own: Of the rows in the model.
    """

    stored: Sequence[str]
    own: Sequence[str]

    def arranged(self, stored: Tensor, own: Tensor) -> Tensor:
        """Returns the rows of the model: those of the checkpoint where it has one of the name."""
        if stored.shape[1:] != own.shape[1:]:
            return stored  # It does not fit.
        found = own.detach().clone()
        for row, name in enumerate(self.own):
            if name in self.stored:
                found[row] = stored[self.stored.index(name)]
        return found


def load_partial_weights(
    directory: Path,
    model: nn.Module,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] | str = (),
    renamed: Mapping[str, str] | None = None,
    rows: Mapping[str, RowNames] | None = None,
) -> LoadedParts:
    """Loads the weights of a checkpoint into parts of a model; the other parts keep theirs.

    Args:
        directory: The checkpoint, of the same or another kind of model.
        model: The model to initialise.
        include: Names of parts, such as `observation_encoder` or `denoiser.blocks.0`; empty: all.
        exclude: Names of parts that keep their weights, or `mismatched`: all parts that the model
            lacks or has in another shape.
        renamed: The names in the model of parts with another name in the checkpoint; `include` and
            `exclude` are names in the model. If None, all names are equal.
        rows: The tensors of the model whose rows have names; rows without a stored one keep their
            weights. If None, no tensor.

    Raises:
        ValueError: A part is unknown, no part is left, or a tensor does not fit the model.
    """
    wanted = model.state_dict()
    offered = _in_order(_renamed(read_weights(directory / WEIGHTS), renamed or {}), wanted)
    offered |= _arranged(offered, wanted, rows or {})
    named = () if isinstance(exclude, str) else exclude
    _check_names("include", include, offered)
    _check_names("exclude", named, {**offered, **wanted})
    if isinstance(exclude, str) and exclude != MISMATCHED:
        raise ValueError(f"exclude is {exclude!r}; allowed: a list of parts, or {MISMATCHED!r}.")
    chosen = _inside(offered, include) if include else set(offered)
    chosen -= _inside(offered, named)
    reasons = {name: _mismatch(name, offered, wanted) for name in offered if name in chosen}
    mismatched = {name: why for name, why in reasons.items() if why}
    units = {_unit(name, offered) for name in mismatched}
    if mismatched and exclude != MISMATCHED:
        raise ValueError(
            _explained(
                directory, mismatched, [*named, *collapsed(_inside(offered, units), offered)]
            )
        )
    chosen -= _inside(offered, units)
    if not chosen:
        raise ValueError(
            f"No part of {directory} is left to load: include is {list(include)}, exclude is "
            f"{exclude}."
        )
    model.load_state_dict({name: offered[name] for name in chosen}, strict=False)
    return LoadedParts(
        loaded=collapsed(chosen, offered),
        initialised=collapsed(wanted.keys() - chosen, wanted),
        unused=collapsed(offered.keys() - chosen, offered),
    )


def _renamed(tensors: Mapping[str, Tensor], renamed: Mapping[str, str]) -> dict[str, Tensor]:
    """Returns tensors by their names in the model."""
    found = {}
    for name, tensor in tensors.items():
        part = next((part for part in renamed if _within(name, (part,))), "")
        found[renamed.get(part, part) + name.removeprefix(part)] = tensor
    return found


def _arranged(
    offered: Mapping[str, Tensor], wanted: Mapping[str, Tensor], rows: Mapping[str, RowNames]
) -> dict[str, Tensor]:
    """Returns the tensors whose rows have names, with the rows of the model."""
    return {
        name: names.arranged(offered[name], wanted[name])
        for name, names in rows.items()
        if name in offered and name in wanted
    }


def _in_order(tensors: Mapping[str, Tensor], like: Iterable[str]) -> dict[str, Tensor]:
    """Returns tensors in the order of other names; further tensors come last."""
    return {name: tensors[name] for name in [*(name for name in like if name in tensors), *tensors]}


def collapsed(
    names: Collection[str], everything: Iterable[str], above: str = ""
) -> tuple[str, ...]:
    """Returns the fewest parts that contain these names of tensors and no others of `everything`.

    `above` is the part to search; empty: all.
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
    """Returns the layer of a tensor, which is loaded as a whole; without one, the tensor."""
    layer = name.rpartition(".")[0]
    flat = layer and all(
        other.count(".") == name.count(".") for other in names if _within(other, (layer,))
    )
    return layer if flat else name


def _check_names(setting: str, parts: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
    for part in parts:
        if not any(_within(name, (part,)) for name in tensors):
            raise unknown_name(f"part of the model to {setting}", part, part_names(tensors))


def _mismatch(name: str, offered: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Returns why a tensor cannot be loaded; empty: it can."""
    if name not in wanted:
        return "is not in this model"
    got = tuple(offered[name].shape)
    want = tuple(wanted[name].shape)
    return "" if got == want else f"is {got} in the checkpoint, {want} in this model"


def _explained(directory: Path, mismatched: Mapping[str, str], exclude: Iterable[str]) -> str:
    listed = "; ".join(f"{name} {why}" for name, why in list(mismatched.items())[:4])
    more = f"; and {len(mismatched) - 4} more" if len(mismatched) > 4 else ""
    return (
        f"The weights of {directory} do not fit this model: {listed}{more}. To keep the initial "
        f"weights of those parts: exclude=[{','.join(exclude)}], or exclude={MISMATCHED}."
    )
