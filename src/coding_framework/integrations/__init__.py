"""The judge in trainers that are not ours (docs/integrations.md).

`client` speaks to a judge server and needs nothing of ours; `kernels` judges a model's answers, in
this process or by a server; `trl_reward`, `verifiers_env` and `inspect_task` are what TRL,
verifiers and Inspect call.
"""
