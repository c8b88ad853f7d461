"""The device process, which alone communicates with the arms: loop, state, timing and its twin."""
