"""Statistics of success rates: intervals, paired differences, power."""
