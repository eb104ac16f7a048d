"""The results file and its histogram."""
