"""The cells of evidence: their names stay, their commands are valid, and the page says what they have shown."""

import json
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from hydra import compose, initialize_config_module

ROOT = Path(__file__).parents[2]
FIRST = "hand_over_banana/cayley_values/metric/0/small"


def _benchmark(name: str) -> ModuleType:
    """Loads a script of benchmarks/, whose folder must not come on the path: its `encodings.py` would hide Python's own."""
    specification = spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return _benchmark("evidence_page")


@pytest.fixture(scope="module")
def evidence(page: ModuleType) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "evidence_page", page)
        yield _benchmark("evidence")


def test_what_was_measured_is_the_answer_to_a_cell(evidence: ModuleType) -> None:
    names = [cell.name for cell in evidence.cells()]
    assert len(set(names)) == len(names)
    assert evidence.known().keys() <= set(names)
    assert all(len(line["success"]) == evidence.SEEDS for line in evidence.known().values())


def test_encodings_come_before_kinds_of_policies_and_these_before_the_rest(evidence: ModuleType) -> None:
    names = [cell.name for cell in evidence.cells()]
    encodings = [f"hand_over_banana/{name}/metric/0/small" for name in ("cayley_values", "cayley", "rope_mixed", "none")]
    assert names[:7] == [*encodings, f"{FIRST}/flow", f"{FIRST}/act", f"{FIRST}/energy"]
    assert names[7] == "hand_over_banana/rope_mixed_values/metric/0/small"


def test_the_next_cell_is_the_first_that_is_missing(evidence: ModuleType) -> None:
    everything = evidence.cells()
    assert evidence.chosen(None, everything, {}).name == FIRST
    assert evidence.chosen(None, everything, {cell.name: {} for cell in everything[:4]}).name == f"{FIRST}/flow"
    assert evidence.chosen(None, everything, {cell.name: {} for cell in everything}) is None
    with pytest.raises(ValueError, match=f"There is no cell '{FIRST}/flo'. Did you mean '{FIRST}/flow'"):
        evidence.chosen(f"{FIRST}/flo", everything, {})


def test_every_choice_is_a_command_that_can_be_given(evidence: ModuleType) -> None:
    """The files have each option: Hydra refuses those that are not there."""
    telling = {(cell.encoding, cell.policy): cell for cell in evidence.cells() if cell.coordinates == "metric"}
    assert {policy for _, policy in telling} == set(evidence.POLICIES)
    kinds = {}
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for (encoding, policy), cell in telling.items():
            training = compose("train", overrides=dict(cell.commands())["train"])
            assert training.policy.memory["_target_"].endswith("ObservationMemory"), "all kinds see the same"
            assert training.policy.memory.dim == training.policy.dim == 128
            assert training.policy.memory["values"] == encoding.endswith("_values")
            kinds[policy] = training.policy
        given = dict(evidence.cells()[0].commands())
        for verb in ("collect", "eval"):
            compose(verb, overrides=given[verb])
    assert kinds["act"].chunk == 100
    assert kinds["act"].kl_weight == 10
    assert {kind: found["_target_"].rpartition(".")[2] for kind, found in kinds.items()} == {
        "diffusion": "DiffusionPolicy",
        "flow": "FlowPolicy",
        "act": "ActPolicy",
        "energy": "EnergyPolicy",
    }


def line(encoding: str, successes: int, policy: str | None = None) -> dict[str, object]:
    """Returns the line of a cell that succeeds on the first so many of ten seeds."""
    told = {} if policy is None else {"policy": policy}
    return {
        "task": "mug",
        "encoding": encoding,
        "coordinates": "metric",
        "seed": 0,
        "scale": "small",
        "success": "1" * successes + "0" * (10 - successes),
        **told,
    }


def test_policies_are_compared_with_diffusion_on_the_same_seeds(page: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "results.md"
    file.write_text(f"Before.\n{page.BEGIN}\nold\n{page.END}\nAfter.\n")
    lines = [line("cayley_values", 9), line("none", 2, "diffusion"), line("cayley_values", 4, "act")]
    page.write_page(file, lines)
    text = file.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "old" not in text
    encodings, policies = text.split("### ")[1:]
    assert encodings.startswith("mug, metric coordinates, small\n")
    assert "| none | 1 | 2/10 = 20 % " in encodings
    assert "+70 points" in encodings, "on seven seeds the reference alone succeeds"
    assert "act" not in encodings
    assert policies.startswith("mug, metric coordinates, small: kinds of policies, all with cayley_values\n")
    assert "| diffusion | 1 | 9/10 = 90 % " in policies
    assert "| act | 1 | 4/10 = 40 % " in policies
    assert "+50 points" in policies
    assert "| 0.062 |" in policies, "five discordant pairs, all one way: 2 / 2^5"


def test_one_kind_of_policy_is_no_comparison(page: ModuleType) -> None:
    assert "kinds of policies" not in page.tables([line("cayley_values", 9), line("none", 2)])


def test_a_page_without_the_marks_is_refused(page: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("Nothing.\n")
    with pytest.raises(ValueError, match=r"page\.md lacks the lines"):
        page.write_page(tmp_path / "page.md", [])


def test_lines_without_a_policy_are_of_diffusion(evidence: ModuleType, page: ModuleType) -> None:
    old = json.loads((ROOT / "docs" / "results.jsonl").read_text().splitlines()[0])
    assert "policy" not in old
    assert page.policy_of(old) == "diffusion"
    assert evidence.Cell(*(old[name] for name in ("task", "encoding", "coordinates", "seed", "scale"))).name == old["name"]
