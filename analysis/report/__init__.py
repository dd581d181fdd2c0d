"""An experiment's report: one document (JSON), and a self-contained page and the forms of CI systems made from it.
No I/O here either."""

from taskloom.analysis.report.ci import FAILING, junit, markdown
from taskloom.analysis.report.document import SCHEMA, Asked, build, card
from taskloom.analysis.report.page import page
from taskloom.analysis.report.timeline import to_show

__all__ = ["FAILING", "SCHEMA", "Asked", "build", "card", "junit", "markdown", "page", "to_show"]
