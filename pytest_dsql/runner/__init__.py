"""Where the load generator runs: here, on an EC2 instance, in functions of AWS Lambda.

`ec2` has the whole pytest session run on an instance near the target (`there` is what runs on it); `functions` has a
function of Lambda do single operations, many at once. Nothing here knows pytest.
"""
