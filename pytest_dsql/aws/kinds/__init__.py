"""The kinds of things that can be created on AWS: one class each (`resources.Resource`), one file per family."""
