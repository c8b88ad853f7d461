"""Experiments: recipes, each trained several times and evaluated, and their comparison."""
