"""Plants: the worlds that emulated robots move, and the images of their cameras."""
