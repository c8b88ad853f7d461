"""Props: parametric models of the objects on the table."""
