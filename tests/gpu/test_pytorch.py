"""PyTorch through the hook: a notebook's typical use, within a memory limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20
ALLOCATORS = {
    "caching": {},
    "expandable segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}
SEES = """
import json, torch
free, total = torch.cuda.mem_get_info()
print(json.dumps([total, torch.cuda.get_device_properties(0).total_memory, free]))
"""
# 60 % fit; 60 % more do not, also after the framework's own retry; for 70 % it gives up its cache.
RETRIES = """
import json, sys, torch
quota = torch.cuda.mem_get_info()[1]
take = lambda percent: torch.empty(quota * percent // 100, dtype=torch.uint8, device="cuda")
held, said = take(60), []
try:
    take(60)
    said.append("fits")
except torch.OutOfMemoryError as error:
    said.append("out of memory")
held[-1] = 7
said.append(int(held[-1]))
del held
big = take(70)
big[-1] = 9
said.append(int(big[-1]))
print(json.dumps(said))
"""
LARGEST = """
import json, torch
torch.zeros(1, device="cuda")
low, high = 0, torch.cuda.mem_get_info()[1] // (2 << 20) * 2
while high - low > 1:
    middle = (low + high) // 2
    try:
        torch.empty(middle * (2 << 20), dtype=torch.uint8, device="cuda")
        low = middle
    except torch.OutOfMemoryError:
        high = middle
    torch.cuda.empty_cache()
print(json.dumps(low * (2 << 20)))
"""
COMPUTES = """
import hashlib, json, torch
torch.manual_seed(3)
torch.use_deterministic_algorithms(True)
layers = torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 30 * 30, 10)
net = torch.nn.Sequential(*layers)
net = net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(64, 3, 32, 32).cuda(), torch.randint(0, 10, (64,)).cuda()
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
matrix = torch.randn(512, 512, device="cuda")
product = (matrix @ matrix).cpu().numpy().tobytes()
weights = b"".join(p.detach().cpu().numpy().tobytes() for p in net.parameters())
print(json.dumps([float(loss), hashlib.sha256(product + weights).hexdigest()]))
"""
CAPTURES = """
import json, torch
x = torch.ones(1 << 20, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    warm = (x * 2 + 1).sum()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    between = x * 2
    total = (between + 1).sum()
sums = []
for value in (1, 2, 3):
    x.fill_(value)
    graph.replay()
    sums.append(float(total) / (1 << 20))
print(json.dumps(sums))
"""
SHARES = """
import json, torch, torch.multiprocessing as mp
def work(tensor, queue):
    tensor += 1
    torch.cuda.synchronize()
    queue.put(torch.cuda.mem_get_info()[1])
if __name__ == "__main__":
    mp.set_start_method("spawn")
    tensor, queue = torch.zeros(1 << 20, device="cuda"), mp.get_context("spawn").Queue()
    child = mp.get_context("spawn").Process(target=work, args=(tensor, queue))
    child.start()
    total = queue.get(timeout=200)
    child.join()
    print(json.dumps([float(tensor.sum()) / (1 << 20), total]))
"""
LOADS = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset
class Plain(torch.utils.data.Dataset):
    def __len__(self): return 256
    def __getitem__(self, index): return torch.full((8,), float(index))
torch.cuda.init()
torch.zeros(1, device="cuda")
total = 0.0
for batch in DataLoader(Plain(), batch_size=32, num_workers=2, pin_memory=True):
    total += float(batch.cuda(non_blocking=True).sum())
print(json.dumps(total))
"""


@pytest.fixture(autouse=True)
def _torch(needs: Callable[..., None]) -> None:
    needs("torch")


def test_it_sees_the_quota(a_kernel: Any) -> None:
    total, properties, free = a_kernel.run(SEES)
    assert (total, properties) == (a_kernel.quota, a_kernel.quota)
    assert 0 < free <= total


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_its_allocator_retries_at_the_quota(allocator: str, a_kernel: Any) -> None:
    assert a_kernel.run(RETRIES, **ALLOCATORS[allocator]) == ["out of memory", 7, 9]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_largest_tensor_is_about_the_quota_less_the_context(allocator: str, a_kernel: Any) -> None:
    found = a_kernel.run(LARGEST, **ALLOCATORS[allocator])
    usable = a_kernel.usable()
    print(f"PyTorch, {allocator}: largest {found / MIB:.0f} MiB of {usable / MIB:.0f} MiB")
    assert usable - 128 * MIB <= found <= a_kernel.quota


def test_it_computes_the_same_with_the_hook(a_kernel: Any) -> None:
    deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert a_kernel.run(COMPUTES, **deterministic) == a_kernel.run(COMPUTES, is_hooked=False, **deterministic)


@pytest.mark.parametrize("allocator", ["caching", "expandable segments"])
def test_a_graph_with_memory_replays(allocator: str, a_kernel: Any) -> None:
    assert a_kernel.run(CAPTURES, **ALLOCATORS[allocator]) == [3.0, 5.0, 7.0]


def test_a_spawned_process_shares_memory_and_quota(a_kernel_that_stays: Any) -> None:
    assert a_kernel_that_stays.run(SHARES) == [1.0, a_kernel_that_stays.quota]


def test_swappable_memory_is_not_shared_by_ipc_and_the_log_says_so(a_kernel: Any) -> None:
    with pytest.raises(AssertionError, match="exit 1"):
        a_kernel.run(SHARES)
    assert "event=memory_stays" in a_kernel.log.read_text()


def test_workers_that_fork_after_cuda_began_load_data(a_kernel: Any) -> None:
    assert a_kernel.run(LOADS) == 8.0 * sum(range(256))
