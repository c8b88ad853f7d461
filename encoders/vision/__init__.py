"""The RGB-D vision transformer: patches, attention over positions, several cameras."""
