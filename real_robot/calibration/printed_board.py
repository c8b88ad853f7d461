"""Writes a board as a PDF page in its true size.

    python -m stringline.real_robot.calibration.printed_board board.pdf

Print the page without scaling, glue it onto a flat and stiff plate, and measure a square.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from stringline.real_robot.calibration.board import Board

_MARGIN_MM = 15.0
_SQUARE_PX = 240
_INCH_MM = 25.4


def write_board(board: Board, path: Path) -> tuple[float, float]:
    """Writes a page, such as a .pdf or .svg file; returns its width and height in millimetres.

    Raises:
        ValueError: The format is unknown.
    """
    width, height = (1e3 * length + 2 * _MARGIN_MM for length in board.size_m)
    figure = Figure(figsize=(width / _INCH_MM, height / _INCH_MM))
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in kinds:
        raise ValueError(
            f"{path} has an unknown ending; allowed: {', '.join(f'.{kind}' for kind in kinds)}."
        )
    x = _MARGIN_MM / width
    y = _MARGIN_MM / height
    axes = figure.add_axes((x, y, 1 - 2 * x, 1 - 2 * y))
    axes.imshow(
        board.drawn(_SQUARE_PX), cmap="gray", vmin=0, vmax=255, interpolation="none", aspect="auto"
    )
    axes.axis("off")
    sides = f"squares of {board.square_mm:g} mm, markers of {board.marker_mm:g} mm"
    caption = f"{board.columns} x {board.rows} {sides}, {board.dictionary}"
    figure.text(0.5, _MARGIN_MM / height / 3, caption, ha="center", va="center", fontsize=8)
    figure.savefig(path)
    return width, height


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Board()
    parser.add_argument("file", type=Path)
    for name in ("columns", "rows"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name), help="squares")
    for name in ("square_mm", "marker_mm"):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=float,
            default=getattr(default, name),
            help="side, millimetres",
        )
    parser.add_argument(
        "--dictionary",
        default=default.dictionary,
        help="OpenCV's name of the markers, such as DICT_APRILTAG_36h11",
    )
    settings = vars(parser.parse_args(arguments))
    path = settings.pop("file")
    try:
        width, height = write_board(Board.of(settings), path)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    sys.stdout.write(
        f"{path}: {width:g} x {height:g} mm. Print it without scaling, and measure a square.\n"
    )


if __name__ == "__main__":
    main()
