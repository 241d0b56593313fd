import torch
import torch.nn as nn


class CrossNetMix(nn.Module):
    """Cross layers of DCN-M with a mixture of low-rank experts, all experts in one einsum."""

    def __init__(self, in_features, low_rank=64, num_experts=4, layer_num=2):
        super().__init__()
        self.layer_num = layer_num
        self.num_experts = num_experts
        # U: (in_features, low_rank)
        self.U_list = nn.Parameter(torch.Tensor(layer_num, num_experts, in_features, low_rank))
        # V: (in_features, low_rank)
        self.V_list = nn.Parameter(torch.Tensor(layer_num, num_experts, in_features, low_rank))
        # C: (low_rank, low_rank)
        self.C_list = nn.Parameter(torch.Tensor(layer_num, num_experts, low_rank, low_rank))
        self.gating = nn.ModuleList([nn.Linear(in_features, num_experts, bias=False) for _ in range(layer_num)])
        self.bias = nn.Parameter(torch.zeros(layer_num, in_features))
        for para in (self.U_list, self.V_list, self.C_list):
            nn.init.xavier_normal_(para)

    def forward(self, x_0):
        x_l = x_0
        for i in range(self.layer_num):
            gate = torch.softmax(self.gating[i](x_l), dim=-1)  # (bs, num_experts)

            # project the input x_l to R^{r}
            v_x = torch.tanh(torch.einsum("bd,edr->ber", x_l, self.V_list[i]))
            # nonlinear activation in low rank space
            v_x = torch.tanh(torch.einsum("ber,eqr->beq", v_x, self.C_list[i]))
            # project back to R^{d}
            uv_x = torch.einsum("ber,edr->bed", v_x, self.U_list[i])

            dot_ = x_0.unsqueeze(1) * (uv_x + self.bias[i])
            x_l = torch.einsum("bed,be->bd", dot_, gate) + x_l
        return x_l


class Model(nn.Module):
    """Click-through head on the mixture-of-experts cross network of DCN-V2."""

    def __init__(self, in_features, low_rank, num_experts):
        super().__init__()
        self.crossnet = CrossNetMix(in_features, low_rank, num_experts)
        self.dnn_linear = nn.Linear(in_features, 1, bias=False)

    def forward(self, x):
        return torch.sigmoid(self.dnn_linear(self.crossnet(x))).squeeze(-1)


batch_size = 8192
in_features = 26 * 16 + 13
low_rank = 64
num_experts = 4


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, low_rank, num_experts]
