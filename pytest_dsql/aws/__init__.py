"""AWS: who asks, what was created for a run, and how all of it is removed.

Everything that costs money goes through `creating` and is in a run's `inventory` before it exists; `reaper` removes it.
What can be created is one class each under `kinds/`, named in `resources`. Nothing here knows databases, load or
pytest. boto3 is imported when the first client is made.
"""
