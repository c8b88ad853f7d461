"""The device process, which alone speaks with the arms: loop, state, timing and its twin."""
