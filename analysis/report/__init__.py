"""An experiment's report: its content as data, and a self-contained page and the forms of CI systems made from it.
No I/O here either."""

from taskloom.analysis.report.ci import FAILING, junit, markdown
from taskloom.analysis.report.content import Report, ReportCalibration, ReportCard, ReportExperiment
from taskloom.analysis.report.document import build, card, concluded
from taskloom.analysis.report.page import page
from taskloom.analysis.report.timeline import to_show

__all__ = ["FAILING", "Report", "ReportCalibration", "ReportCard", "ReportExperiment", "build", "card",
           "concluded", "junit", "markdown", "page", "to_show"]  # fmt: skip
