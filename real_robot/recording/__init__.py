"""Recording of deployments into the episode store, and observations from driver states and frames."""
