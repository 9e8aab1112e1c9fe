"""Ray: one job that fans launches out over a cluster. No room below imports it.

run        run_matrix: a matrix file to verdicts;  run_further: a few cells more
staging    prompts, tokenized once a target
sweep      Sweep: the driver's loop; scoring, confirmation, evidence
staleness  which cells of a results folder no longer hold, and why
refusals   cells that are refused before any launch
gang       RunningLaunch: placement group and actor
followers  its process groups on further nodes
actor      LaunchBody: engine and client on the gang's node
passes     send: a pass's requests to a launch's server, and its PassAnswer
evaluation put: an accuracy task, put to a launch's own server
cluster    connect, nodes, infeasible
jobs       Jobs: a sweep as a job, submitted, watched, stopped and resumed from elsewhere
parcel     what a job takes along
hardware   what a launch ran on
"""

from matrixrun.fanout.run import RunEnd, RunOptions, run_further, run_matrix

__all__ = ["RunEnd", "RunOptions", "run_further", "run_matrix"]
