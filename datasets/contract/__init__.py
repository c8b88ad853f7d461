"""The data contract of observations, actions and episodes, and its checks."""
