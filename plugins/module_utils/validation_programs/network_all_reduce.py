# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that measures an all-reduce between nodes with PyTorch and NCCL; it runs in the pods.

nccl-tests runs on several nodes only under mpirun, which needs ssh between the pods. torchrun needs only one address and port.
"""

from __future__ import annotations

# The bus bandwidth is computed as in nccl-tests: size / time * 2 * (n - 1) / n (doc/PERFORMANCE.md). The last two lines have the format of nccl-tests.
SOURCE = """\
import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
wrong, rates = 0, []
for exponent in range(23, 31):
    data = torch.ones(2**exponent // 4, device="cuda")
    dist.all_reduce(data)
    wrong += int((data != size).sum().item())
    data.zero_()
    for phase in ("warm up", "measure"):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for turn in range(10):
            dist.all_reduce(data)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / 10
    rate = 2**exponent / seconds / 1e9 * 2 * (size - 1) / size
    rates.append(rate)
    if rank == 0:
        print(f"{2**exponent:12d} bytes {seconds * 1e6:12.1f} us {rate:8.2f} GB/s", flush=True)
total = torch.tensor([wrong], device="cuda")
dist.all_reduce(total)
if rank == 0:
    print(f"# {'Out of bounds values':20} : {total.item()} {'FAILED' if total.item() else 'OK'}")
    print(f"# {'Avg bus bandwidth':20} : {sum(rates) / len(rates):g} ")
dist.destroy_process_group()
"""
