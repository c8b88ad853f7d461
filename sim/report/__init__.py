"""The HTML report of a run: charts, videos, point clouds, learning curves."""
