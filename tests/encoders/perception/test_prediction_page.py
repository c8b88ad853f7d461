"""The page of predictions shows all measures of all subsets."""

import re
from pathlib import Path

from stringline.datasets.images.image_store import ImageStore
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_network import Examples, Measurement
from stringline.encoders.perception.perception_run import write_page


def test_a_subset_without_an_interval_has_empty_cells(colours: ImageStore, tmp_path: Path) -> None:
    found = Measurement(
        {"mean_iou": 0.5},
        subsets=[
            {"subset": "near", "mean_iou": 0.5},
            {"subset": "far", "mean_iou": 0.25, "mean_iou_low": 0.125, "mean_iou_high": 0.375},
        ],
    )
    examples = Examples(colours, range(1), ImageContract(height=16, width=16))
    write_page(tmp_path / "page.html", examples, found)
    text = (tmp_path / "page.html").read_text()
    table = text.partition("By size, distance and visibility")[2].partition("</table>")[0]
    rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in table.splitlines() if "<tr" in row]
    assert rows == [
        ["subset", "mean_iou", "mean_iou_low", "mean_iou_high"],
        ["near", "0.5", "", ""],
        ["far", "0.25", "0.125", "0.375"],
    ]
