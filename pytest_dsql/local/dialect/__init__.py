"""What DSQL accepts, rewrites or refuses: rules as dated data, judged on the parse tree."""

from pytest_dsql.local.dialect.judge import judge
from pytest_dsql.local.dialect.judgement import Judgement, Kind, Part, Refusal

__all__ = ["Judgement", "Kind", "Part", "Refusal", "judge"]
