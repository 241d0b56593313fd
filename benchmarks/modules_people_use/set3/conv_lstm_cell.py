import torch
import torch.nn as nn


class Model(nn.Module):
    """ConvLSTM cell with peephole connections, for precipitation nowcasting."""

    def __init__(self, input_dim, hidden_dim, kernel_size, height, width):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.conv = nn.Conv2d(
            in_channels=input_dim + hidden_dim,
            out_channels=4 * hidden_dim,
            kernel_size=kernel_size,
            padding=kernel_size // 2,
        )
        self.Wci = nn.Parameter(0.1 * torch.randn(1, hidden_dim, height, width))
        self.Wcf = nn.Parameter(0.1 * torch.randn(1, hidden_dim, height, width))
        self.Wco = nn.Parameter(0.1 * torch.randn(1, hidden_dim, height, width))

    def forward(self, input_tensor, h_cur, c_cur):
        combined = torch.cat([input_tensor, h_cur], dim=1)
        combined_conv = self.conv(combined)
        cc_i, cc_f, cc_g, cc_o = torch.split(combined_conv, self.hidden_dim, dim=1)

        i = torch.sigmoid(cc_i + self.Wci * c_cur)
        f = torch.sigmoid(cc_f + self.Wcf * c_cur)
        c_next = f * c_cur + i * torch.tanh(cc_g)
        o = torch.sigmoid(cc_o + self.Wco * c_next)
        h_next = o * torch.tanh(c_next)
        return torch.cat([h_next, c_next], dim=1)


B = 8
C_IN = 16
HIDDEN = 64
H = W = 48


def get_inputs():
    return [
        torch.randn(B, C_IN, H, W),
        torch.randn(B, HIDDEN, H, W),
        torch.randn(B, HIDDEN, H, W),
    ]


def get_init_inputs():
    return [C_IN, HIDDEN, 3, H, W]
