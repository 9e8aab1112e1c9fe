"""Sign-off: from a sweep's results folder to what a person decides upon.

report        write_report: one HTML file with all evidence;  junit: for CI
page          build_page: a results folder as the data of that file (html: the file itself)
axes          the axes that vary, in words;  interactions: what a covering sweep covered
detail        one cell's evidence;  divergences, estimates: its parts
bundle        write_bundles: a failing cell, to be run again with the engine alone
causes        what broke, in groups;  localise: which settings bring it on
narrow        what a failure needs, axis by axis;  followup: a few further cells to find out
levels        a sweep in the figures that are compared with another's
baseline      accept, read_baseline: an approved sweep as a file
policy        what blocks, what is waived, which faults are known
comparison    what changed, cell by cell
decision      decide: SIGNED or NOT SIGNED, and why;  wording: in words
signoff       sign_off: reads, decides, writes;  registry: records it in MLflow
plots         write_plots: a cell's evidence as an image, for MLflow
"""

from matrixrun.signoff.baseline import accept, read_baseline, write_baseline
from matrixrun.signoff.bundle import write_bundles
from matrixrun.signoff.causes import localised
from matrixrun.signoff.comparison import compare
from matrixrun.signoff.decision import Decision, decide
from matrixrun.signoff.followup import follow_up, follow_up_lines
from matrixrun.signoff.levels import levels_of
from matrixrun.signoff.localise import localise
from matrixrun.signoff.page import build_page
from matrixrun.signoff.plots import report_with_plots, write_plots
from matrixrun.signoff.policy import Policy, read_policy
from matrixrun.signoff.registry import record, tag_baseline
from matrixrun.signoff.report import write_junit, write_report
from matrixrun.signoff.signoff import SignoffOptions, sign_off
from matrixrun.signoff.wording import decision_text

__all__ = [
    "Decision",
    "Policy",
    "SignoffOptions",
    "accept",
    "build_page",
    "compare",
    "decide",
    "decision_text",
    "follow_up",
    "follow_up_lines",
    "levels_of",
    "localise",
    "localised",
    "read_baseline",
    "read_policy",
    "record",
    "report_with_plots",
    "sign_off",
    "tag_baseline",
    "write_baseline",
    "write_bundles",
    "write_junit",
    "write_plots",
    "write_report",
]
