"""Train a U-Net through a fixed sparse matrix, the way that PyTorch offers: A is a sparse tensor.

The network sees a sinogram x and makes an image; A projects the image, and the projection should be
x again. The backward pass multiplies by the transpose of A, which PyTorch builds anew each time.
"""

import torch
import torch.nn.functional as F
from parts import Meter, options, start
from parts import load_coo

o = options(__doc__)
model, optimizer, data = start(o)
A = load_coo(o.matrix, o.matrix_device)
meter = Meter(o.device)

for step in range(o.steps):
    x = torch.tensor(data[step % len(data)][None], device=o.device)
    image = model(x).flatten(1).T.to(o.matrix_device)
    with meter.through_matrix(image) as measured:
        y = torch.sparse.mm(A, image)
        measured(y)
    loss = F.mse_loss(y.T.to(o.device), x.flatten(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meter.report(step, loss)
