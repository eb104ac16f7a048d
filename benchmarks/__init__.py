"""The experiments as tests: `pytest benchmarks -m dsql`, or `pytest --pyargs pytest_dsql.benchmarks -m dsql`."""
