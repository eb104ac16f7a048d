"""What runs cost: prices, unit costs, the estimate before, the meters and the budget during, the bill after.

Knows nothing of pytest. Prices and unit costs are dated data (`prices.toml`, `unit_costs.toml`), each with its source.
"""
