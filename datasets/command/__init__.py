"""The framework of all commands: configuration through Hydra, help, and errors of the user."""
