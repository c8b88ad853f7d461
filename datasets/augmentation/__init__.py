"""Augmentation of training batches: crops, light and depth noise."""
