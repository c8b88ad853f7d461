"""The data contract: keys, shapes, units and frames of observations, actions and episodes, and their validation."""
