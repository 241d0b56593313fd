import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear-chain CRF negative log likelihood per sentence (forward algorithm minus gold score)."""

    def __init__(self, num_tags):
        super().__init__()
        self.num_tags = num_tags
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for p in self.parameters():
            nn.init.uniform_(p, -0.1, 0.1)

    def _score(self, emissions, tags, mask, lengths):
        emit = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        trans = self.transitions[tags[:, :-1], tags[:, 1:]]
        score = self.start_transitions[tags[:, 0]]
        score = score + (emit * mask).sum(1) + (trans * mask[:, 1:]).sum(1)
        last_tags = tags.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)
        return score + self.end_transitions[last_tags]

    def _log_partition(self, emissions, mask):
        score = self.start_transitions + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            nxt = score.unsqueeze(2) + self.transitions + emissions[:, t].unsqueeze(1)
            nxt = torch.logsumexp(nxt, dim=1)
            score = torch.where(mask[:, t].unsqueeze(1), nxt, score)
        return torch.logsumexp(score + self.end_transitions, dim=1)

    def forward(self, emissions, tags, lengths):
        pos = torch.arange(emissions.size(1), device=emissions.device)
        mask = pos.unsqueeze(0) < lengths.unsqueeze(1)
        gold = self._score(emissions, tags, mask.float(), lengths)
        return self._log_partition(emissions, mask) - gold


batch_size = 64
max_len = 48
n_tags = 17


def get_inputs():
    return [
        torch.randn(batch_size, max_len, n_tags),
        torch.randint(0, n_tags, (batch_size, max_len)),
        torch.randint(2, max_len + 1, (batch_size,)),
    ]


def get_init_inputs():
    return [n_tags]
