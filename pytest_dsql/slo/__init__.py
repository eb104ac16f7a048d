"""Objectives and verdicts: pure arithmetic. No I/O, no clock, no pytest."""
