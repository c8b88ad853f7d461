"""Editing of stores, and new stores derived from others."""
