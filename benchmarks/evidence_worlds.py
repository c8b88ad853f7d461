"""Rows of the tables that compare choices in several worlds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evidence_page import (
    Line,
    Runs,
    by_name,
    difference,
    each,
    pairs_of,
    policy_differences,
    rate,
    recipe,
    recipe_differences,
    success,
)

UNSHIFTED = ""
Worlds = dict[str, dict[str, Runs]]
"""Outcomes by training seed, of each choice, in each world; the world without a shift is first."""


@dataclass(frozen=True)
class Row:
    """Texts of one choice in one world.

    Attributes:
        world: Name of the world.
        choice: Name of the choice.
        success: Success of each training.
        recipe: Mean of the trainings with its interval.
        drop: Loss of success against the world without a shift, for each training.
        policies: Difference of the reference less this, policies of the same training seed.
        recipes: Difference of the reference less this, recipes.
    """

    world: str
    choice: str
    success: str
    recipe: str
    drop: str
    policies: str
    recipes: str


def worlds_of(lines: Sequence[Line], choice: str, world: str) -> Worlds:
    """Returns the outcomes of lines; `choice` and `world` are the fields that name them."""
    groups: dict[str, list[Line]] = {UNSHIFTED: []}
    for line in lines:
        groups.setdefault(str(line[world]), []).append(line)
    return {name: by_name(group, lambda line: str(line[choice])) for name, group in groups.items()}


def rows(worlds: Worlds, reference: str) -> Iterator[Row]:
    """Yields the rows of all worlds, in each the best choice first.

    Values of p and posterior probabilities are corrected for all rows (Holm).
    """
    against = {
        (world, choice): (choices.get(reference, {}), runs)
        for world, choices in worlds.items()
        for choice, runs in choices.items()
        if choice != reference
    }
    policies, recipes = policy_differences(against), recipe_differences(against)
    for world, choices in worlds.items():
        for choice in sorted(choices, key=lambda choice: -success(choices[choice])):
            yield Row(
                world,
                choice,
                each(choices[choice], lambda text: str(rate(text))),
                recipe(choices[choice]),
                _drop(worlds, world, choice),
                policies.get((world, choice), "-"),
                recipes.get((world, choice), "-"),
            )


def _drop(worlds: Worlds, world: str, choice: str) -> str:
    """Returns how much of its success without a shift each training loses, paired by starts."""
    runs: Mapping[int, str] = worlds[world][choice]
    plain = {} if world == UNSHIFTED else worlds[UNSHIFTED].get(choice, {})
    common = sorted(runs.keys() & plain.keys())
    return "; ".join(difference(pairs_of(runs[seed], plain[seed])) for seed in common) or "-"
