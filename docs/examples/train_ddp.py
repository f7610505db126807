"""Fits a line on all GPUs of a job, one process per GPU (or per CPU where there is no GPU): an example for torchrun."""

import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
print(f"rank {rank} of {dist.get_world_size()} on {socket.gethostname()}, {device}", flush=True)

torch.manual_seed(rank)  # each process has its own data: y = 3 x + 1, with noise
x = torch.randn(4096, 1, device=device)
y = 3 * x + 1 + 0.1 * torch.randn_like(x)
model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device), device_ids=[local_rank] if gpu else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(101):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()  # the gradients become the mean of those of all processes
    optimizer.step()
    if rank == 0 and step % 25 == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)

if rank == 0:
    line = model.module
    print(f"y = {line.weight.item():.2f} x + {line.bias.item():.2f}")
    torch.save(line.state_dict(), "line.pt")
dist.destroy_process_group()
