"""Augmentation of training batches: crops, light, textures, errors of cameras."""
