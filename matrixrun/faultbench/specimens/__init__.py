"""The specimens, by what they damage or where they show.

output     what is emitted: tokens, logprobs, ends of answers, and the KV behind them
drafts     the drafter
requests   requests that ask for samples or processors, users' endpoints, a task
state      transitions, turns, the prefix cache
"""
