import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
MAX_TIME = 400
RNN_DIM = 1024
EMB_DIM = 512
ATT_DIM = 128
N_FILTERS = 32
KERNEL = 31


class Model(nn.Module):
    """Tacotron 2 location sensitive attention: context vector of one decoder step."""

    def __init__(self, rnn_dim, emb_dim, att_dim, n_filters, kernel_size):
        super().__init__()
        self.query_layer = nn.Linear(rnn_dim, att_dim, bias=False)
        self.memory_layer = nn.Linear(emb_dim, att_dim, bias=False)
        self.v = nn.Linear(att_dim, 1, bias=False)
        self.location_conv = nn.Conv1d(2, n_filters, kernel_size, padding=(kernel_size - 1) // 2, bias=False)
        self.location_dense = nn.Linear(n_filters, att_dim, bias=False)
        self.score_mask_value = -float("inf")

    def forward(self, hidden, memory, prev_weights, cum_weights, mask):
        weights_cat = torch.cat((prev_weights.unsqueeze(1), cum_weights.unsqueeze(1)), dim=1)
        processed_query = self.query_layer(hidden.unsqueeze(1))
        processed_memory = self.memory_layer(memory)
        processed_weights = self.location_dense(self.location_conv(weights_cat).transpose(1, 2))
        energies = self.v(torch.tanh(processed_query + processed_weights + processed_memory)).squeeze(-1)
        alignment = energies.masked_fill(mask, self.score_mask_value)
        attention_weights = F.softmax(alignment, dim=1)
        return torch.bmm(attention_weights.unsqueeze(1), memory).squeeze(1)


def get_inputs():
    lengths = torch.randint(MAX_TIME // 2, MAX_TIME + 1, (BATCH, 1))
    mask = torch.arange(MAX_TIME).unsqueeze(0) >= lengths
    return [
        torch.randn(BATCH, RNN_DIM),
        torch.randn(BATCH, MAX_TIME, EMB_DIM),
        torch.softmax(torch.randn(BATCH, MAX_TIME), dim=-1),
        10 * torch.softmax(torch.randn(BATCH, MAX_TIME), dim=-1),
        mask,
    ]


def get_init_inputs():
    return [RNN_DIM, EMB_DIM, ATT_DIM, N_FILTERS, KERNEL]
