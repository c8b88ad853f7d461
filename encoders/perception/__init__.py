"""Classification, retrieval and detection with the image encoders: boxes, losses and measures."""
