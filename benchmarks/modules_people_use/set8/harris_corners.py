import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, H, W = 16, 480, 640
KSIZE, SIGMA = 7, 1.5


class Model(nn.Module):
    """Harris corner response of RGB images with 5x5 non-maximum suppression."""

    def __init__(self, k=0.04, ksize=7, sigma=1.5):
        super().__init__()
        self.k = k
        self.pad = ksize // 2
        sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8.0
        self.register_buffer("grad_kernel", torch.stack([sobel, sobel.t()]).unsqueeze(1))
        t = torch.arange(ksize).float() - ksize // 2
        g = torch.exp(-t ** 2 / (2 * sigma ** 2))
        g = g / g.sum()
        self.register_buffer("gauss", torch.outer(g, g).expand(3, 1, ksize, ksize).contiguous())
        self.register_buffer("luma", torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1))

    def forward(self, img):
        gray = (img * self.luma).sum(1, keepdim=True)
        grads = F.conv2d(F.pad(gray, (1, 1, 1, 1), mode="replicate"), self.grad_kernel)
        dx, dy = grads[:, 0], grads[:, 1]
        products = torch.stack([dx * dx, dy * dy, dx * dy], dim=1)
        products = F.conv2d(products, self.gauss, padding=self.pad, groups=3)
        sxx, syy, sxy = products.unbind(1)
        det = sxx * syy - sxy * sxy
        trace = sxx + syy
        response = det - self.k * trace ** 2
        local_max = F.max_pool2d(response.unsqueeze(1), 5, stride=1, padding=2).squeeze(1)
        return torch.where(response == local_max, response, torch.zeros_like(response))


def get_inputs():
    return [torch.rand(BATCH, 3, H, W)]


def get_init_inputs():
    return [0.04, KSIZE, SIGMA]
