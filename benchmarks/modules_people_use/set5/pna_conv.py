import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Principal neighbourhood aggregation: mean, max, min and std of the messages with degree scalers."""

    def __init__(self, in_channels, out_channels, avg_log_degree):
        super().__init__()
        self.avg_log_degree = avg_log_degree
        self.pre = nn.Linear(2 * in_channels, in_channels)
        self.post = nn.Linear(13 * in_channels, out_channels)

    def forward(self, x, edge_index):
        num_nodes = x.size(0)
        src, dst = edge_index[0], edge_index[1]
        msg = F.relu(self.pre(torch.cat([x[dst], x[src]], dim=-1)))  # [E, F]

        deg = torch.zeros(num_nodes, device=x.device).index_add(0, dst, torch.ones_like(dst, dtype=x.dtype))
        deg = deg.clamp(min=1).unsqueeze(-1)
        zeros = torch.zeros_like(x)
        index = dst.unsqueeze(-1).expand_as(msg)
        mean = zeros.scatter_add(0, index, msg) / deg
        mean_sq = zeros.scatter_add(0, index, msg * msg) / deg
        std = torch.sqrt(F.relu(mean_sq - mean * mean) + 1e-5)
        maximum = zeros.scatter_reduce(0, index, msg, reduce="amax", include_self=False)
        minimum = zeros.scatter_reduce(0, index, msg, reduce="amin", include_self=False)
        aggr = torch.cat([mean, maximum, minimum, std], dim=-1)

        log_deg = torch.log(deg + 1)
        amplified = aggr * (log_deg / self.avg_log_degree)
        attenuated = aggr * (self.avg_log_degree / log_deg)
        out = torch.cat([x, aggr, amplified, attenuated], dim=-1)
        return self.post(out)


num_nodes = 8000
num_edges = 64000
channels = 64


def get_inputs():
    return [torch.randn(num_nodes, channels), torch.randint(0, num_nodes, (2, num_edges))]


def get_init_inputs():
    return [channels, channels, 2.17]
