"""The controller's side of FRI: sessions, checks and faults, over any world that the servos' emulator knows too."""
