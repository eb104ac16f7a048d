"""What is measured: schema, data, transactions and invariants of each workload."""
