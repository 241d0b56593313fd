import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Language model head with tanh logit soft-capping, shifted cross entropy and a z-loss on the log partition."""

    def __init__(self, hidden_size, vocab_size, softcap=30.0, z_loss=1e-4, pad_token_id=0):
        super().__init__()
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)
        self.softcap = softcap
        self.z_loss = z_loss
        self.pad_token_id = pad_token_id

    def forward(self, hidden_states, labels):
        logits = self.lm_head(hidden_states[:, :-1])
        logits = self.softcap * torch.tanh(logits / self.softcap)
        logits = logits.flatten(0, 1)
        loss = F.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=self.pad_token_id)
        log_z = torch.logsumexp(logits, dim=-1)
        return loss + self.z_loss * log_z.square().mean()


batch_size = 4
seq_len = 257
hidden_size = 512
vocab_size = 16000
hidden_scale = 16.0


def get_inputs():
    return [
        torch.randn(batch_size, seq_len, hidden_size) * hidden_scale,
        torch.randint(0, vocab_size, (batch_size, seq_len)),
    ]


def get_init_inputs():
    return [hidden_size, vocab_size]
