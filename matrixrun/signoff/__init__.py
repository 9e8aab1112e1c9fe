"""Sign-off: from a sweep's results folder to what a person decides upon.

report        write_report: one HTML file with all evidence
page          build_page: a results folder as the data of that file (html: the file itself)
detail        one cell's evidence;  divergences, estimates: its parts
causes        what broke, in groups;  localise: which settings bring it on
"""

from matrixrun.signoff.causes import localised
from matrixrun.signoff.localise import localise
from matrixrun.signoff.page import build_page
from matrixrun.signoff.report import write_report

__all__ = ["build_page", "localise", "localised", "write_report"]
