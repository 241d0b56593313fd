import math

import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_ENTITIES = 50_000
NUM_RELATIONS = 237
DIM = 256
BATCH = 512
NEGATIVES = 64
GAMMA = 12.0
ADV_TEMPERATURE = 0.5


class Model(nn.Module):
    """RotatE knowledge-graph loss with self-adversarial weighting of corrupted tails."""

    def __init__(
        self, num_entities: int, num_relations: int, dim: int, gamma: float, adv_temperature: float
    ):
        super().__init__()
        self.gamma = gamma
        self.adv_temperature = adv_temperature
        self.embedding_range = (gamma + 2.0) / dim
        self.entity = nn.Embedding(num_entities, 2 * dim)
        self.relation = nn.Embedding(num_relations, dim)
        nn.init.uniform_(self.entity.weight, -self.embedding_range, self.embedding_range)
        nn.init.uniform_(self.relation.weight, -self.embedding_range, self.embedding_range)

    def score(self, rot_re: torch.Tensor, rot_im: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        tail_re, tail_im = tail.chunk(2, dim=-1)
        distance = torch.hypot(rot_re - tail_re, rot_im - tail_im)
        return self.gamma - distance.sum(dim=-1)

    def forward(self, triples: torch.Tensor, negative_tails: torch.Tensor) -> torch.Tensor:
        head_re, head_im = self.entity(triples[:, 0]).chunk(2, dim=-1)
        phase = self.relation(triples[:, 1]) * (math.pi / self.embedding_range)
        cos, sin = phase.cos(), phase.sin()
        rot_re = head_re * cos - head_im * sin
        rot_im = head_re * sin + head_im * cos

        positive = self.score(rot_re, rot_im, self.entity(triples[:, 2]))
        negative = self.score(rot_re.unsqueeze(1), rot_im.unsqueeze(1), self.entity(negative_tails))

        adv_weights = F.softmax(negative * self.adv_temperature, dim=-1)
        negative_loss = -(adv_weights * F.logsigmoid(-negative)).sum(dim=-1).mean()
        positive_loss = -F.logsigmoid(positive).mean()
        return 0.5 * (positive_loss + negative_loss)


def get_inputs():
    triples = torch.stack(
        [
            torch.randint(0, NUM_ENTITIES, (BATCH,)),
            torch.randint(0, NUM_RELATIONS, (BATCH,)),
            torch.randint(0, NUM_ENTITIES, (BATCH,)),
        ],
        dim=1,
    )
    return [triples, torch.randint(0, NUM_ENTITIES, (BATCH, NEGATIVES))]


def get_init_inputs():
    return [NUM_ENTITIES, NUM_RELATIONS, DIM, GAMMA, ADV_TEMPERATURE]
