"""The order workload of E002."""
