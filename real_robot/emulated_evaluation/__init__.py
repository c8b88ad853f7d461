"""Evaluation of a policy through the real protocols, on emulated arms."""
