"""Grippers beside arms: one face for those at the outputs of an arm's controller and for those with a wire of their own."""
