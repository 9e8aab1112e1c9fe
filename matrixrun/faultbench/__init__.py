"""The fault bench: faults put into a real engine's process, and what the judge makes of them.

specimen    Specimen: what is put into an engine, where, and what it damages
catalogue   all specimens: faults by public report, and harmless things that must not be accused
specimens/  their lists, by what they damage or where they show
control     Switch: which injection is active in a launch
pair        Pair: one on and one off launch that serve every specimen
probed      what a further probe observes on a pair
trial       Bench: one specimen with one seed, judged in blocks as a sweep is
table       the outcome as a table and as JSON
run         run_bench
injection/  what runs in the engine's process; it imports nothing of matrixrun
"""

from matrixrun.faultbench.catalogue import SPECIMENS
from matrixrun.faultbench.run import BenchOptions, BenchResult, run_bench, show
from matrixrun.faultbench.specimen import Specimen

__all__ = ["SPECIMENS", "BenchOptions", "BenchResult", "Specimen", "run_bench", "show"]
