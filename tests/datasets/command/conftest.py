"""Packages outside of Stringline, and a file of trusted packages."""

from tests.datasets.extensions.conftest import own_trust, write_module

__all__ = ["own_trust", "write_module"]
