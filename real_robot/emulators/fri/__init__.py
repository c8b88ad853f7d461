"""The controller's side of FRI: sessions, checks and faults."""
