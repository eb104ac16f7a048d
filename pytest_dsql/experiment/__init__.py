"""Plans: which cells an experiment runs, per plan and target."""
