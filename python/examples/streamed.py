"""original.py with three lines changed: A streams from a tile store, in the memory that is allowed."""

import torch
import torch.nn.functional as F
from parts import Meter, options, start
import streamtrain

o = options(__doc__)
model, optimizer, data = start(o)
A = streamtrain.open(o.matrix, device=o.matrix_device, vram_budget=o.vram_budget, ram_budget=o.ram_budget)
meter = Meter(o.device)

for step in range(o.steps):
    x = torch.tensor(data[step % len(data)][None], device=o.device)
    image = model(x).flatten(1).T.to(o.matrix_device)
    with meter.through_matrix(image) as measured:
        y = A @ image
        measured(y)
    loss = F.mse_loss(y.T.to(o.device), x.flatten(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meter.report(step, loss)
