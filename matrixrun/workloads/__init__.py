"""Workloads: what is sent to an engine, as token ids made once per target.

prompts     Prompt, Workload
tokenizer   Tokenizer, load_tokenizer: a checkpoint's own tokenizer and chat template
served      ServedTokenizer: a tokenizer that only a running engine can read
chat        render: a chat template in a sandbox
registry    the workloads by name, one file each:
  decided     copy, count, echo, repeat: continuations with wide margins
  natural     English prose, cut at random places;  message: what a user might say about it
  editing     edits, code: copies with changes, at which drafts are rejected
  known       counting, echo, needle: answers that are known
  turns       chat: questions with further turns, for conversations
own         the user's own JSONL;  check_file: what can be said of it without a tokenizer
bad_words   with_bad_words: what requests may forbid in the answers to a workload's prompts
build       build: a WorkloadSpec and a Tokenizer to a Workload
"""

from matrixrun.workloads.bad_words import with_bad_words
from matrixrun.workloads.build import build
from matrixrun.workloads.natural import message
from matrixrun.workloads.own import check_file
from matrixrun.workloads.prompts import Prompt, Workload
from matrixrun.workloads.registry import check_categories, names
from matrixrun.workloads.served import ServedTokenizer
from matrixrun.workloads.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "Prompt",
    "ServedTokenizer",
    "Tokenizer",
    "Workload",
    "build",
    "check_categories",
    "check_file",
    "load_tokenizer",
    "message",
    "names",
    "with_bad_words",
]
