"""Recording of deployments into the episode store; observations from driver states and frames."""
