import torch
import torch.nn as nn

N_TRIPS = 4_000_000
EARTH_RADIUS_KM = 6371.0088


class Model(nn.Module):
    """Great-circle distance in km between pickup and dropoff (lat, lon in degrees)."""

    def __init__(self, radius):
        super().__init__()
        self.radius = radius

    def forward(self, pickup, dropoff):
        lat1, lon1 = torch.deg2rad(pickup).unbind(-1)
        lat2, lon2 = torch.deg2rad(dropoff).unbind(-1)
        a = torch.sin((lat2 - lat1) / 2) ** 2 + torch.cos(lat1) * torch.cos(lat2) * torch.sin((lon2 - lon1) / 2) ** 2
        return 2 * self.radius * torch.asin(torch.sqrt(a.clamp(0.0, 1.0)))


def get_inputs():
    centre = torch.tensor([40.75, -73.98])
    return [centre + 0.2 * torch.randn(N_TRIPS, 2), centre + 0.2 * torch.randn(N_TRIPS, 2)]


def get_init_inputs():
    return [EARTH_RADIUS_KM]
