"""A data scientist's PyTorch in a kernel of half a GPU: its own size, errors and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.provisioner.relay.agent import ipykernel_trim as kernel_side

MIB = 1 << 20
QUOTA = 512 * MIB
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def test_the_gpu_has_the_size_of_the_kernel(a_kernel: Any) -> None:
    found = a_kernel.run(
        """
        import pynvml
        free, total = torch.cuda.mem_get_info()
        pynvml.nvmlInit()
        nvml = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
        result = [torch.cuda.is_available(), torch.cuda.device_count(), free, total, nvml.total,
                  torch.cuda.get_device_properties(0).total_memory]
        """
    )
    assert found == [True, 1, QUOTA, QUOTA, QUOTA, QUOTA]


def test_bytes_survive_the_way_to_the_device_and_back(a_kernel: Any) -> None:
    assert a_kernel.run(
        """
        here = torch.randint(0, 255, (8 * MIB,), dtype=torch.uint8)
        pinned = here.pin_memory()
        there = pinned.to("cuda", non_blocking=True)
        copy = there.clone()
        torch.cuda.synchronize()
        result = bool((copy.cpu() == here).all())
        """
    )


def test_the_ledger_and_the_allocator_agree(a_kernel: Any) -> None:
    program = a_kernel.start(
        """
        kept = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
        free, total = torch.cuda.mem_get_info()
        print(json.dumps([torch.cuda.memory_reserved(), total - free]), flush=True)
        sys.stdin.readline()
        """
    )
    line = program.stdout.readline()
    assert line, program.communicate()[1]
    reserved, taken = [int(word) for word in line.strip(" []\n").split(",")]
    assert reserved == taken == a_kernel.charged()


def test_over_quota_pytorch_says_so_frees_its_cache_and_goes_on(a_kernel: Any) -> None:
    found = a_kernel.run(
        """
        blocks, message = [], ""
        try:
            while len(blocks) < 100:
                blocks.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            message = str(error)
        count = len(blocks)
        blocks.clear()                                                  # cached by PyTorch, still held on the device
        whole = torch.empty(480 * MIB, dtype=torch.uint8, device="cuda")  # fits only when the cache is returned
        retries = torch.cuda.memory_stats()["num_alloc_retries"]
        result = [count, message, whole.numel(), retries]
        """
    )
    count, message, whole, retries = found
    assert count == 8
    assert "GPU 0 has a total capacity of 512.00 MiB" in message
    assert whole == 480 * MIB
    assert retries >= 1


@pytest.mark.parametrize("allocator", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_the_other_allocators_meet_the_same_quota(a_kernel: Any, allocator: str) -> None:
    found = a_kernel.run(
        """
        blocks = []
        try:
            while len(blocks) < 100:
                blocks.append(torch.empty(60 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            pass
        count = len(blocks)
        blocks.clear()
        torch.cuda.empty_cache()
        again = torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
        result = [count, again.numel()]
        """,
        PYTORCH_ALLOC_CONF=allocator,
    )
    assert found == [8, 400 * MIB]


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_a_trim_returns_what_torch_keeps_and_no_more(a_kernel: Any, allocator: str) -> None:
    kept, counted, live, again = a_kernel.run(
        f"""
        side = {{"__name__": "aliquot"}}
        exec(open({kernel_side.__file__!r}).read(), side)
        live = torch.full((20 * MIB,), 7, dtype=torch.uint8, device="cuda")
        block = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
        del block
        kept = torch.cuda.memory_reserved()
        found = side["trim"]({{"while": __file__}})
        counted = kept - torch.cuda.memory_reserved() == found["bytes"] == found["frameworks"]["torch"]
        block = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
        result = [found["bytes"], counted, int(live.sum(dtype=torch.int64)) == 7 * live.numel(), block.numel()]
        """,
        PYTORCH_ALLOC_CONF=allocator,
    )
    assert kept >= 200 * MIB
    assert (counted, live, again) == (True, True, 200 * MIB)


def test_streams_and_events_keep_time(a_kernel: Any) -> None:
    assert a_kernel.run(
        """
        stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(True), torch.cuda.Event(True)
        with torch.cuda.stream(stream):
            begin.record()
            for _ in range(100):
                torch.empty(1024, device="cuda").add_(1)
            end.record()
        end.synchronize()
        result = begin.elapsed_time(end) > 0
        """
    )


def test_a_captured_graph_runs_again_and_its_memory_is_charged(a_kernel: Any) -> None:
    found = a_kernel.run(
        """
        before = torch.cuda.mem_get_info()[0]
        source = torch.arange(MIB, dtype=torch.int32, device="cuda")
        target = torch.zeros(MIB, dtype=torch.int32, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
            target.copy_(source)
        torch.cuda.synchronize()
        was = int(target.cpu().sum())
        graph.replay()
        torch.cuda.synchronize()
        result = [was, int((target.cpu() == source.cpu()).all()), before - torch.cuda.mem_get_info()[0]]
        """
    )
    was, is_equal, taken = found
    assert was == 0, "capturing must not run"
    assert is_equal == 1
    assert taken >= 48 * MIB


def test_tensors_shared_by_ipc_are_charged_once(make_kernel: Callable[..., Any]) -> None:
    found = make_kernel(residency="off").run(
        """
        import torch.multiprocessing as mp

        def read(queue, answers):
            tensor = queue.get()
            answers.put([int(tensor.cpu().sum()), torch.cuda.mem_get_info()[0]])
            del tensor

        if __name__ == "__main__":
            spawn = mp.get_context("spawn")
            queue, answers = spawn.Queue(), spawn.Queue()
            child = spawn.Process(target=read, args=(queue, answers))
            child.start()
            tensor = torch.arange(1024, dtype=torch.int64).to("cuda")
            keep = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
            before = torch.cuda.mem_get_info()[0]
            queue.put(tensor)
            total, free_there = answers.get(timeout=60)
            result = [total, before, free_there]
            child.join(60)
        """
    )
    total, before, free_there = found
    assert total == 1023 * 512
    assert free_there == before


def test_data_loader_workers_do_not_disturb_the_parent(a_kernel: Any) -> None:
    assert a_kernel.run(
        """
        from torch.utils.data import DataLoader, TensorDataset

        if __name__ == "__main__":
            torch.empty(1, device="cuda")
            data = TensorDataset(torch.arange(256))
            loader = DataLoader(data, batch_size=32, num_workers=2, pin_memory=True)
            total = sum(int(batch.to("cuda").cpu().sum()) for (batch,) in loader)
            result = [total, torch.cuda.mem_get_info()[1] == 512 * MIB]
        """
    ) == [255 * 128, True]


def test_a_kernel_of_one_and_a_half_sees_two_devices(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(150)
    found = kernel.run("result = sorted(torch.cuda.mem_get_info(i)[1] for i in range(torch.cuda.device_count()))")
    assert found == [512 * MIB, 1024 * MIB]


def test_the_notebook_may_choose_among_its_own_devices(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(150)
    sizes = kernel.run("result = [torch.cuda.mem_get_info(i)[1] for i in range(torch.cuda.device_count())]")
    found = kernel.run(
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        result = [torch.cuda.device_count(), torch.cuda.mem_get_info()[1]]
        """
    )
    assert found == [1, sizes[1]]
