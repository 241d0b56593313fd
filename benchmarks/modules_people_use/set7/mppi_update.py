import torch
import torch.nn as nn
import torch.nn.functional as F


SAMPLES = 16384
HORIZON = 64
OBSTACLES = 12
DT = 0.05
TEMPERATURE = 10.0
V_MAX = 2.0
W_MAX = 1.5


class Model(nn.Module):
    """MPPI control of a unicycle robot: rolls out noisy plans and averages them by cost."""

    def __init__(self, dt, temperature, v_max, w_max):
        super().__init__()
        self.dt = dt
        self.temperature = temperature
        self.register_buffer("u_max", torch.tensor([v_max, w_max]))
        self.register_buffer("inv_sigma", torch.tensor([1.0 / 0.25, 1.0 / 0.16]))
        self.goal_weight = 1.0
        self.terminal_weight = 20.0
        self.obstacle_weight = 50.0

    def forward(self, plan, noise, state, goal, obstacles):
        # plan (T, 2), noise (K, T, 2), state (3,), goal (2,), obstacles (M, 3) as x, y, radius
        u = torch.maximum(torch.minimum(plan + noise, self.u_max), -self.u_max)
        noise = u - plan
        v, w = u.unbind(dim=-1)

        heading = state[2] + torch.cumsum(w * self.dt, dim=1)
        x = state[0] + torch.cumsum(v * torch.cos(heading) * self.dt, dim=1)
        y = state[1] + torch.cumsum(v * torch.sin(heading) * self.dt, dim=1)
        pos = torch.stack([x, y], dim=-1)

        goal_dist = torch.linalg.vector_norm(pos - goal, dim=-1)
        gap = torch.linalg.vector_norm(pos.unsqueeze(2) - obstacles[:, :2], dim=-1)
        overlap = F.relu(obstacles[:, 2] - gap).sum(dim=-1)
        effort = (plan * self.inv_sigma * noise).sum(dim=-1)

        running = self.goal_weight * goal_dist + self.obstacle_weight * overlap + effort
        cost = running.sum(dim=1) + self.terminal_weight * goal_dist[:, -1]

        weight = torch.softmax(-(cost - cost.min()) / self.temperature, dim=0)
        new_plan = plan + torch.einsum("k,ktd->td", weight, noise)
        return new_plan, cost


def get_inputs():
    plan = torch.rand(HORIZON, 2) * torch.tensor([1.0, 0.4]) - torch.tensor([0.0, 0.2])
    noise = torch.randn(SAMPLES, HORIZON, 2) * torch.tensor([0.5, 0.4])
    state = torch.rand(3) * 0.5
    goal = 4.0 + torch.rand(2)
    obstacles = torch.cat([torch.rand(OBSTACLES, 2) * 4.0, 0.2 + 0.4 * torch.rand(OBSTACLES, 1)], 1)
    return [plan, noise, state, goal, obstacles]


def get_init_inputs():
    return [DT, TEMPERATURE, V_MAX, W_MAX]
