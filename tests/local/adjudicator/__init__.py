"""Whether the engine decides conflicts as Aurora DSQL does, judged from outside: a model, races, and their harness."""
