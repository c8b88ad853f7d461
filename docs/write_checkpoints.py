"""Writes docs/checkpoints.md from the index of checkpoints, policies/checkpoints/index.yaml.

    python docs/write_checkpoints.py

Run it after a change to the index; a test compares.
"""

from pathlib import Path

from stringline.policies.checkpoints.load import RegisteredCheckpoint, read_index

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "checkpoints.md"
FOLDER = ROOT / "policies" / "checkpoints"
INTRODUCTION = """\
# Checkpoints

All commands with an option `checkpoint` accept these names:

    stringline-eval checkpoint={example}
    stringline-deploy checkpoint={example} robot=aloha_emulated

Success rates have 95 % Wilson intervals.

| name | robot | tasks | success | size | where |
|---|---|---|---|---|---|
"""
REST = """\
## Checkpoints at an address

`checkpoint` also accepts an address of fsspec (`https://`, `s3://`, `hf://`, `file://` and others)
with the SHA-256 of the checkpoint:

    stringline-eval checkpoint=https://HOST/FOLDER@sha256:HEX
    stringline-eval checkpoint=hf://USER/REPOSITORY/FOLDER@sha256:HEX

- The address is that of a folder with `checkpoint.yaml` and `weights.safetensors`.
- The publisher of a checkpoint finds HEX with
  `cat checkpoint.yaml weights.safetensors | sha256sum`. An address without HEX is refused. A folder
  on the disk may have one too: `checkpoint=FOLDER@sha256:HEX`.
- The files, at most 16 GiB, are fetched once into `$XDG_CACHE_HOME/stringline/checkpoints` (by
  default in `~/.cache`) and verified before every use.
- `https://` and `s3://` need `pip install "stringline[remote]"`, and `hf://` needs
  `pip install "stringline[hub]"`.

## Adding a checkpoint to the list

1. Copy the folder of the checkpoint to `policies/checkpoints/NAME` (for checkpoints below 10 MB),
   or upload it.
2. Add an entry to `policies/checkpoints/index.yaml`, with the success rate of the named evaluation.
3. Run `python docs/write_checkpoints.py` and
   `python -m pytest tests/policies/checkpoints/test_registry.py`. The tests compare size, SHA-256,
   interval, tasks and this page with the index.
"""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())


def page() -> str:
    """Returns the text of the page."""
    entries = list(read_index(FOLDER).values())
    table = "\n".join(map(_row, entries))
    sections = "\n".join(map(_section, entries))
    return f"{INTRODUCTION.format(example=entries[0].name)}{table}\n\n{sections}\n{REST}"


def _row(entry: RegisteredCheckpoint) -> str:
    size = f"{entry.size_bytes / 1e6:.1f} MB"
    return (
        f"| [{entry.name}](#{entry.name}) | {entry.robot} | {', '.join(entry.tasks)} | "
        f"{entry.result} | {size} | {entry.where} |"
    )


def _section(entry: RegisteredCheckpoint) -> str:
    video = Path(entry.video).relative_to("docs")
    training = "\n    ".join(entry.training.split(" && "))
    return "\n".join(
        (
            f"## {entry.name}\n",
            f"![{entry.name}: {', '.join(entry.tasks)}]({video})\n",
            f"    {training}    # training",
            f"    {entry.evaluation}    # {entry.result}\n",
            f"SHA-256: `{entry.sha256}`\n",
        )
    )


if __name__ == "__main__":
    main()
