"""Classes of other packages: their names, the consent to run their code, and entry points."""
