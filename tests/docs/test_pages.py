"""Every page: its links lead to files, its commands compose, its Python compiles."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from tests.docs.pages import ROOT, SCRIPTS, Command, blocks, commands

from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.encoders.perceive import with_heads
from stringline.sim.evaluate_recordings import with_dataset
from stringline.sim.experiments.recipes import with_recipes
from stringline.sim.worlds.task_settings import with_interpreter

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
# What the commands themselves resolve (a suite in a file, choices of nothing, folders), and words
# in capitals that a reader replaces.
LEFT_TO_COMMANDS = re.compile(
    r"suite=.*\.yaml|\w+=null|(output|checkpoint|dataset.path|store|path|record|save|ply)=.*"
    r"|[\w.]+=[A-Z_]+|[\w/]+=[\w.]+:[\w:.-]+"
)
GENERATED = "reference/"  # Pages of docs/site_hook.py.


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yields the file and the anchor of each relative link of a page."""
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            name, _, anchor = target.partition("#")
            yield (page.parent / name).resolve() if name else page, anchor


@cache
def anchors(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page."""
    text = CODE.sub(lambda found: found[0].strip("`"), page.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in HEADING.findall(text))
    return {re.sub(r"[-\s]+", "-", heading) for heading in words}


def names(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    site_only = {DOCS / "contributing.md"}
    for target, anchor in links(page):
        if target in site_only or target.is_relative_to(DOCS / GENERATED):
            continue
        assert target.exists(), f"{names(page)} links to {target}"
        if anchor:
            assert anchor in anchors(target), f"{names(page)}: no heading {anchor} in {target}"


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_python_of_pages_compiles(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, f"{names(page)}:{block.line}", "exec")


def page_commands(page: Path) -> list[Command]:
    """Returns the Stringline commands of a page, except those that list verbs or options."""
    return [
        command
        for block in blocks(page)
        if block.language in ("sh", "indented")
        for command in commands(block)
        if command.words[0].startswith("stringline-")
        and "--help" not in command.words
        and command.words != ("stringline-data",)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the YAML files of all pages, for `--config-dir=.`."""
    folder = tmp_path_factory.mktemp("pages")
    for block in (block for page in PAGES for block in blocks(page)):
        if block.title.endswith(".yaml"):
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_options_of_commands_exist(written: Path) -> None:
    @cache
    def composed(name: str, choices: tuple[str, ...]) -> Any:
        return OmegaConf.to_container(compose(name, list(choices)))

    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for page in PAGES:
            for command in page_commands(page):
                where = f"{names(page)}:{command.line}"
                parts = [one.partition("=") for one in overrides(command)]
                given = {key: value for key, _, value in parts}
                name = configuration(command)
                # Of collections, `policy` is an option with one value and no group.
                single = {
                    key for key, value in composed(name, ()).items() if not isinstance(value, dict)
                }
                chosen = {
                    key: value
                    for key, value in given.items()
                    if is_group(key) and key not in single
                }
                missing = [key for key, value in chosen.items() if not is_file(key, value, written)]
                assert missing == [], where
                # A composition takes a tenth of a second, so choices are composed only for options
                # that the default choices lack.
                unknown = [key for key in given if not has(composed(name, ()), key)]
                if unknown:
                    search = f"hydra.searchpath=[file://{written}]"
                    choices = (*(f"{key}={value}" for key, value in chosen.items()), search)
                    unknown = [key for key in unknown if not has(composed(name, choices), key)]
                usual = composed(name, ())
                left = [key for key in unknown if key not in chosen and not is_entry(usual, key)]
                assert left == [], where


def is_entry(plain: Any, key: str) -> bool:
    """Returns whether an option is an empty mapping, or an entry of one."""
    for part in key.split("."):
        if plain == {}:
            return True
        plain = plain.get(part) if isinstance(plain, dict) else None
    return bool(plain == {})


@pytest.mark.slow
def test_mappings_in_commands_can_be_given(written: Path) -> None:
    found = []
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for command in (command for page in PAGES for command in page_commands(page)):
            parts = [(one, *one.partition("=")[::2]) for one in overrides(command)]
            given = [one for one, key, value in parts if value.startswith("{") and key[0] != "+"]
            chosen = [one for one, key, _ in parts if is_group(key)]
            if given:
                search = f"hydra.searchpath=[file://{written}]"
                name = configuration(command)
                usual = OmegaConf.to_container(compose(name, []))
                taken = [
                    f"++{one}" if is_entry(usual, one.partition("=")[0]) else one for one in given
                ]
                compose(name, [*chosen, search, *taken])
                found += given
    assert len(found) > 5


def is_file(group: str, choice: str, written: Path) -> bool:
    """Returns whether the choices of a group, one or a list, exist."""
    return group == "hydra/launcher" or all(
        one in choice_names(CONFIGS, group) or (written / group / f"{one}.yaml").is_file()
        for one in choice.strip("[]").split(",")
    )


def is_group(key: str) -> bool:
    """Returns whether an override chooses a file of a group."""
    return (ROOT / "configs" / key).is_dir() or key == "hydra/launcher"


def has(settings: object, key: str) -> bool:
    """Returns whether a configuration has an option; `+` adds one, and Hydra has its own."""
    if key.startswith(("+", "~", "hydra.")):
        return True
    node = settings
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def configuration(command: Command) -> str:
    """Returns the primary configuration of a command."""
    assert command.words[0] in SCRIPTS, command
    name = command.words[0].removeprefix("stringline-")
    return f"data/{command.words[1]}" if name == "data" else name


def overrides(command: Command) -> list[str]:
    """Returns the options of a command, of several values the first, and paths left out."""
    words = command.words
    if words[0] == "stringline-experiment":
        words = tuple(with_recipes(words))
    if words[0] == "stringline-perceive":
        words = tuple(with_heads(words))
    if words[0] == "stringline-eval":
        words = tuple(with_dataset(words))
    if words[0] in ("stringline-collect", "stringline-eval"):
        words = tuple(with_interpreter(words))
    given = [word for word in words[1:] if "=" in word and word[0] != "-"]
    kept = [one for one in given if not LEFT_TO_COMMANDS.fullmatch(one)]
    return [first_value(one) for one in kept] if "--multirun" in command.words else kept


def first_value(override: str) -> str:
    """Returns an override with the first value of its sweep."""
    [parsed] = OverridesParser.create().parse_overrides([override])
    if not parsed.is_sweep_override():
        return override
    return f"{parsed.key_or_group}={next(iter(parsed.sweep_string_iterator()))}"


def site() -> dict[str, Any]:
    """Returns mkdocs.yml."""
    settings: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.SafeLoader)
    return settings


def entries(navigation: Any) -> Iterator[str]:
    """Yields the pages of a navigation tree."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for entry in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from entries(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [entry for entry in entries(site()["nav"]) if not entry.startswith(GENERATED)]
    assert sorted(listed) == sorted(
        [*(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")), "contributing.md"]
    )


def test_every_page_is_within_two_links_of_the_readme() -> None:
    first = {target for target, _ in links(ROOT / "README.md")}
    second = {target for page in first if page.suffix == ".md" for target, _ in links(page)}
    assert set(DOCS.rglob("*.md")) - first - second == set()


def test_each_way_through_the_code_names_at_most_twenty_files() -> None:
    ways = (DOCS / "architecture.md").read_text().split("## Ways", 1)[1].split("\n## ", 1)[0]
    parts = ways.split("\n**")[1:]
    assert len(parts) == 5
    for part in parts:
        files = re.findall(r"`([\w/]+\.py)`", part)
        folders = {Path(file).parent for file in files if "/" in file}
        assert 8 <= len(files) <= 20, part[:60]
        for file in files:  # A name without a folder is beside one of the others.
            assert any((ROOT / folder / file).is_file() for folder in {Path(), *folders}), file
