"""Distribution shifts: ways in which an episode can differ from those that a policy was trained on."""
