"""What work costs on DSQL, in Distributed Processing Units (DPU): estimated from what runs here.

Here live the published formulas (`formulas`), the estimate below a plan (`explain`), the totals of a cluster (`meter`),
and what both need to know of tables (`tables`).
"""
