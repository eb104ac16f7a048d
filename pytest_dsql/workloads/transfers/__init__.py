"""The transfer workload: money moved between accounts, the classic case of contention. Imports no other workload."""
