import torch
import torch.nn as nn
import torch.nn.functional as F

PAIRS = 2
SEQ_LEN = 256
VOCAB = 32_000
BETA = 0.1


def sequence_logp(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    logp = F.log_softmax(logits[:, :-1], dim=-1)
    token_logp = logp.gather(-1, labels[:, 1:].unsqueeze(-1)).squeeze(-1)
    return (token_logp * mask[:, 1:]).sum(dim=-1)


class Model(nn.Module):
    """Direct preference optimisation loss; the batch holds the chosen rows, then the rejected rows."""

    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def forward(self, policy_logits, reference_logits, labels, completion_mask):
        policy = sequence_logp(policy_logits, labels, completion_mask)
        reference = sequence_logp(reference_logits, labels, completion_mask)
        chosen_reward, rejected_reward = (self.beta * (policy - reference)).chunk(2)
        margin = chosen_reward - rejected_reward
        loss = -F.logsigmoid(margin).mean()
        return loss, chosen_reward, rejected_reward


def get_inputs():
    rows = 2 * PAIRS
    prompt_len = torch.randint(16, SEQ_LEN // 2, (rows, 1))
    total_len = torch.randint(SEQ_LEN // 2 + 16, SEQ_LEN + 1, (rows, 1))
    pos = torch.arange(SEQ_LEN)[None, :]
    policy_logits = torch.randn(rows, SEQ_LEN, VOCAB)
    return [
        policy_logits,
        policy_logits + 0.1 * torch.randn(rows, SEQ_LEN, VOCAB),
        torch.randint(0, VOCAB, (rows, SEQ_LEN)),
        (pos >= prompt_len) & (pos < total_len),
    ]


def get_init_inputs():
    return [BETA]
