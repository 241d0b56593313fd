import torch
import torch.nn as nn


class Model(nn.Module):
    """DeepSurv style survival head: linear log risk and the negative Cox partial log likelihood (no tie handling)."""

    def __init__(self, in_features):
        super().__init__()
        self.risk = nn.Linear(in_features, 1, bias=False)

    def forward(self, features, durations, events):
        log_h = self.risk(features).squeeze(-1)
        order = torch.argsort(durations, descending=True)
        log_h = log_h[order]
        events = events[order].float()
        log_risk_set = torch.logcumsumexp(log_h, dim=0)
        return -((log_h - log_risk_set) * events).sum() / events.sum().clamp(min=1.0)


num_patients = 4096
in_features = 256


def get_inputs():
    return [
        torch.randn(num_patients, in_features),
        torch.rand(num_patients) * 120.0,
        torch.randint(0, 2, (num_patients,)),
    ]


def get_init_inputs():
    return [in_features]
