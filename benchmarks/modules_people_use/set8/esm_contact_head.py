import torch
import torch.nn as nn

BATCH = 2
LAYERS = 12
HEADS = 20
SEQ = 224
VOCAB = 33
EOS_IDX = 2


def symmetrize(x):
    return x + x.transpose(-1, -2)


def apc(x):
    a1 = x.sum(-1, keepdims=True)
    a2 = x.sum(-2, keepdims=True)
    a12 = x.sum((-1, -2), keepdims=True)
    avg = a1 * a2
    avg = avg / a12
    return x - avg


class Model(nn.Module):
    """Protein contact prediction: logistic regression over APC-corrected attention maps."""

    def __init__(self, in_features, eos_idx):
        super().__init__()
        self.eos_idx = eos_idx
        self.regression = nn.Linear(in_features, 1)
        self.activation = nn.Sigmoid()

    def forward(self, tokens, attentions):
        # drop eos, then bos
        eos_mask = tokens.ne(self.eos_idx).to(attentions)
        eos_mask = eos_mask.unsqueeze(1) * eos_mask.unsqueeze(2)
        attentions = attentions * eos_mask[:, None, None, :, :]
        attentions = attentions[..., :-1, :-1]
        attentions = attentions[..., 1:, 1:]
        batch_size, layers, heads, seqlen, _ = attentions.size()
        attentions = attentions.reshape(batch_size, layers * heads, seqlen, seqlen)
        attentions = apc(symmetrize(attentions))
        attentions = attentions.permute(0, 2, 3, 1)
        return self.activation(self.regression(attentions).squeeze(3))


def get_inputs():
    tokens = torch.randint(4, 24, (BATCH, SEQ))
    tokens[:, 0] = 0
    tokens[:, -1] = EOS_IDX
    attentions = torch.softmax(3 * torch.randn(BATCH, LAYERS, HEADS, SEQ, SEQ), dim=-1)
    return [tokens, attentions]


def get_init_inputs():
    return [LAYERS * HEADS, EOS_IDX]
