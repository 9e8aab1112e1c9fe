"""Ray: one job that fans launches out over a cluster. No room below imports it.

run        run_matrix: a matrix file to verdicts
staging    prompts, tokenized once a target
sweep      Sweep: the driver's loop; scoring, confirmation, evidence
staleness  which cells of a results folder no longer hold, and why
refusals   cells that are refused before any launch
gang       RunningLaunch: placement group and actor
followers  its process groups on further nodes
actor      LaunchBody: engine and client on the gang's node
cluster    connect, nodes, infeasible
jobs       Jobs: a sweep as a job, submitted, watched, stopped and resumed from elsewhere
parcel     what a job takes along
hardware   what a launch ran on
"""

from matrixrun.fanout.run import RunOptions, run_matrix

__all__ = ["RunOptions", "run_matrix"]
