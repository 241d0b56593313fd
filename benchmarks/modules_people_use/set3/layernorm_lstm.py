import torch
import torch.nn as nn


class LayerNormLSTMCell(nn.Module):
    def __init__(self, input_size, hidden_size, forget_bias=1.0):
        super().__init__()
        self.forget_bias = forget_bias
        self.w_ih = nn.Linear(input_size, 4 * hidden_size, bias=False)
        self.w_hh = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.ln_ih = nn.LayerNorm(4 * hidden_size)
        self.ln_hh = nn.LayerNorm(4 * hidden_size)
        self.ln_c = nn.LayerNorm(hidden_size)

    def forward(self, x, state):
        h, c = state
        gates = self.ln_ih(self.w_ih(x)) + self.ln_hh(self.w_hh(h))
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f + self.forget_bias) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.ln_c(c))
        return h, c


class Model(nn.Module):
    """Layer-normalised LSTM unrolled over a sequence, with a linear output on every step."""

    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.cell = LayerNormLSTMCell(input_size, hidden_size)
        self.fc = nn.Linear(hidden_size, output_size)

    def forward(self, x):
        batch, seq_len, _ = x.shape
        h = x.new_zeros(batch, self.hidden_size)
        c = x.new_zeros(batch, self.hidden_size)
        outputs = []
        for t in range(seq_len):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return self.fc(torch.stack(outputs, dim=1))


batch_size = 32
seq_len = 32
input_size = 64
hidden_size = 128
output_size = 10


def get_inputs():
    return [torch.randn(batch_size, seq_len, input_size)]


def get_init_inputs():
    return [input_size, hidden_size, output_size]
