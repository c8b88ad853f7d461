"""Boards: refused settings, and the printed page."""

from pathlib import Path
from typing import Any

import pytest

from stringline.real_robot.calibration.board import Board
from stringline.real_robot.calibration.printed_board import main as print_board


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"colums": 7}, "There is no setting of a board 'colums'. Did you mean 'columns'"),
        (
            {"rows": 2},
            "A board of 7x2 squares; allowed: at least 3 each way, and 6 corners between them",
        ),
        ({"marker_mm": 30.0}, "Markers of 30.0 mm in squares of 30.0 mm"),
        (
            {"dictionary": "DICT_4X4_55"},
            "There is no dictionary of markers 'DICT_4X4_55'. Did you mean 'DICT_4X4_50'",
        ),
        ({"columns": 12, "rows": 12}, "The board needs 72 markers; DICT_4X4_50 has 50"),
    ],
)
def test_impossible_boards_are_refused(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Board.of(plain)


def test_a_board_is_printed_in_its_true_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_board([str(tmp_path / "board.svg")])
    assert "240 x 180 mm" in capsys.readouterr().out
    points = [f"{number * 72 / 25.4:.6f}"[:6] for number in (240, 180)]
    head = (tmp_path / "board.svg").read_text()[:2000]
    assert f'width="{points[0]}' in head
    assert f'height="{points[1]}' in head
    with pytest.raises(SystemExit, match=r"board\.doc has an unknown ending; allowed: .*\.pdf"):
        print_board([str(tmp_path / "board.doc")])
