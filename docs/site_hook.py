"""Generated pages of the documentation site: the rules and the API reference."""

import atexit
import shutil
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

from stringline import PUBLIC

ROOT = Path(__file__).resolve().parents[1]


@event_priority(50)  # Before mkdocstrings reads its paths.
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the reference pages to the navigation; mkdocstrings reads a copy of the package."""
    handlers = config.plugins["mkdocstrings"].config.handlers
    handlers["python"]["paths"] = [str(package_copy())]
    pages = [{subject: location(subject)} for subject in PUBLIC]
    for section in config.nav or []:
        if isinstance(section, dict) and "Reference" in section:
            kept = [entry for entry in section["Reference"] if entry != "reference/"]
            section["Reference"] = [*kept, *pages]
    return config


def package_copy() -> Path:
    """Copies the package into a temporary folder and returns that folder.

    mkdocstrings finds modules by walking folders; it follows no links, and it skips folders without
    `__init__.py`.
    """
    folder = Path(tempfile.mkdtemp(prefix="stringline-docs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / "stringline"
    shutil.copytree(
        ROOT / ".src" / "stringline",
        copy,
        ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"),
    )
    for path in copy.iterdir():
        if path.is_dir():
            (path / "__init__.py").touch()
    return folder


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to the files of the site."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    files.append(File.generated(config, "contributing.md", content=contributing))
    for subject, modules in PUBLIC.items():
        text = reference_page(subject, modules)
        files.append(File.generated(config, location(subject), content=text))
    return files


def location(subject: str) -> str:
    """Returns the path of a subject's reference page."""
    return f"reference/{subject.lower().replace(' ', '-')}.md"


def reference_page(subject: str, modules: dict[str, tuple[str, ...]]) -> str:
    """Returns the page of a subject: a directive of mkdocstrings for each public name."""
    entries = [
        f"::: stringline.{module}.{name}" for module, names in modules.items() for name in names
    ]
    return "\n\n".join((f"# {subject}", *entries, ""))
