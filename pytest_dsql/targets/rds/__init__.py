"""What the targets on RDS and Aurora share: options, what AWS offers, the network, creating, reaching.

The targets themselves are the modules beside this folder, one each: `rds_multi_az`, `aurora_provisioned`,
`aurora_serverless`, `rds_proxy`.
"""
