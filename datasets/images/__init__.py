"""Labelled images and clips: contract, store, splits, and readers and writers of public layouts."""
