"""The environment of the Jinja templates of HTML pages."""

from pathlib import Path

import jinja2


def template_environment(folder: Path) -> jinja2.Environment:
    """Returns an environment for the templates in a folder.

    Values are escaped, undefined ones are an error, and lines with blocks only are omitted.
    """
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
