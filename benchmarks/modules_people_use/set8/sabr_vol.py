import torch
import torch.nn as nn

N_SCENARIOS = 16384
N_STRIKES = 128
BETA = 0.5


class Model(nn.Module):
    """Hagan's lognormal SABR implied volatility on a strike ladder per scenario."""

    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, f, k, t, alpha, rho, nu):
        f, t = f.unsqueeze(1), t.unsqueeze(1)
        alpha, rho, nu = alpha.unsqueeze(1), rho.unsqueeze(1), nu.unsqueeze(1)
        one_beta = 1.0 - self.beta
        log_fk = torch.log(f / k)
        fk_beta = (f * k) ** (one_beta / 2)

        # z / x(z), with the limit 1 at the money
        z = nu / alpha * fk_beta * log_fk
        x = torch.log((torch.sqrt(1 - 2 * rho * z + z * z) + z - rho) / (1 - rho))
        atm = z.abs() < 1e-4
        z_over_x = torch.where(atm, 1 - 0.5 * rho * z, z / torch.where(atm, torch.ones_like(x), x))

        a = one_beta ** 2 / 24 * log_fk ** 2
        b = one_beta ** 4 / 1920 * log_fk ** 4
        denom = fk_beta * (1 + a + b)

        c1 = one_beta ** 2 / 24 * alpha ** 2 / fk_beta ** 2
        c2 = rho * self.beta * nu * alpha / (4 * fk_beta)
        c3 = (2 - 3 * rho ** 2) / 24 * nu ** 2
        return alpha / denom * z_over_x * (1 + (c1 + c2 + c3) * t)


def get_inputs():
    f = 80 + 40 * torch.rand(N_SCENARIOS)
    moneyness = torch.linspace(0.6, 1.6, N_STRIKES)
    return [
        f,
        f.unsqueeze(1) * moneyness,
        0.1 + 4.9 * torch.rand(N_SCENARIOS),
        1.0 + 2.0 * torch.rand(N_SCENARIOS),
        -0.8 + 1.0 * torch.rand(N_SCENARIOS),
        0.2 + 0.6 * torch.rand(N_SCENARIOS),
    ]


def get_init_inputs():
    return [BETA]
