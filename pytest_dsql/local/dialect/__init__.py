"""What DSQL accepts, rewrites or refuses: rules as dated data, judged on the parse tree."""
