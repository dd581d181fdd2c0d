"""An experiment's report: one document (JSON), and one self-contained page drawn from it. No I/O here either."""

from analysis.report.document import SCHEMA, Asked, build
from analysis.report.page import page
from analysis.report.timeline import to_show

__all__ = ["SCHEMA", "Asked", "build", "page", "to_show"]
