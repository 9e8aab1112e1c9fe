"""The frozen types that travel between rooms. Imports nothing of ours.

cells       Speculation, Cell, Excluded
launches    Arm, Role, Checkpoint, Recipe, Limits, ArmConfig, Command, Gang, Launch, LaunchOutcome
requests    Sampling, Request, ScoreRequest, Pass, Observation, Score, PassRecord
verdicts    Verdict, Severity, Finding, CellEvidence, CellResult, Want, exit codes
errors      every error raised on purpose
"""
