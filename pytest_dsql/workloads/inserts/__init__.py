"""The insert workload of the Lambda experiment: one small table, rows by random keys. Imports no other workload."""
