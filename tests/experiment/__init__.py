"""Tests of the experiments' machinery."""
