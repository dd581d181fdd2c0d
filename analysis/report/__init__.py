"""An experiment's report: one document (JSON), and one self-contained page drawn from it. No I/O here either."""

from taskloom.analysis.report.document import SCHEMA, Asked, build, card
from taskloom.analysis.report.page import page
from taskloom.analysis.report.timeline import to_show

__all__ = ["SCHEMA", "Asked", "build", "card", "page", "to_show"]
