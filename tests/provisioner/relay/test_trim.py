"""An idle ipykernel returns its frameworks' caches on its main thread, unseen, after cells."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relay_house import SECONDS, Gateway, House, a_client, ipykernel, parent, until
from scripted_agent import Agent

from jupyter_aliquot.provisioner.relay.agent import ipykernel_trim as kernel_side
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.client.control import KernelLaunch, RelayRecord

MIB = 1 << 20

# Stand-ins shaped as the real ones, as far as it matters here; each notes its calls.
TORCH = """
import threading
asked = []
class cuda:
    reserved = {0: 96 << 20, 1: 0}
    live = 32 << 20
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    memory_reserved = staticmethod(lambda device=None: cuda.reserved[device])
    @staticmethod
    def empty_cache():
        asked.append(threading.current_thread() is threading.main_thread())
        cuda.reserved[0] = cuda.live
"""
CUPY = """
asked = []
class _Pool:
    def __init__(self): self.bytes = 8 << 20
    def total_bytes(self): return self.bytes
    def free_all_blocks(self): asked.append("free"); self.bytes = 0
_pool, _pinned = _Pool(), _Pool()
get_default_memory_pool = lambda: _pool
get_default_pinned_memory_pool = lambda: _pinned
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "torch.py").write_text(TORCH)
    (folder / "cupy.py").write_text(CUPY)
    return folder


@pytest.fixture
def an_agent(a_house: House) -> Iterator[Agent]:
    a_house.runtime.path.mkdir(exist_ok=True)
    agent = Agent(a_house.runtime.agent_socket)
    yield agent
    agent.close()


class Scene:
    """A kernel that finds the stand-ins, a gateway's link, and the agent that asks it to trim."""

    def __init__(self, house: House, agent: Agent, modules: Path) -> None:
        self.house, self.agent, self.modules = house, agent, modules
        self.record: RelayRecord
        self.gateway: Gateway

    async def start(self, program: list[str] | None = None, **fields: Any) -> Scene:
        record = await self.house.relay(tells_agent=True, **fields)
        launch = ipykernel(record, env={"PYTHONPATH": str(self.modules)})
        if program is not None:
            launch = KernelLaunch((*program, str(record.kernel_connection_file)), launch.env)
        await client.spawn(record, launch)
        self.record = client.read_relay_record(record.folder)
        self.gateway = await Gateway(self.record).connect()
        await self.gateway.done(self.gateway.request("kernel_info_request", {}))
        return self

    async def run(self, code: str, **fields: Any) -> str:
        cell = self.gateway.execute(code, **fields)
        await self.gateway.done(cell)
        return self.gateway.outputs(cell)

    def ask(self) -> None:
        self.agent.tell("trim", self.record.kernel_id)

    async def trim(self) -> int:
        """Ask for trimming until it was done: a kernel that is not quiet does not trim."""
        done = len(self.agent.asked("trimmed"))
        for _ in range(int(SECONDS / 0.5)):
            await until(lambda: self.agent.work == 0)
            self.ask()
            try:
                await until(lambda: len(self.agent.asked("trimmed")) > done, 0.5)
            except AssertionError:
                continue
            told = self.agent.asked("trimmed")[-1]
            assert told["kernel_id"] == self.record.kernel_id
            return int(told["bytes"])
        raise AssertionError("it was never done")


@pytest.fixture
def scene(a_house: House, an_agent: Agent, modules: Path) -> Scene:
    return Scene(a_house, an_agent, modules)


def test_torch_and_cupy_return_what_they_keep_and_the_agent_hears_how_much(scene: Scene) -> None:
    async def play() -> None:
        await scene.start()
        await scene.run("import torch, cupy")
        assert await scene.trim() == (96 - 32 + 8) * MIB
        assert await scene.run("print(torch.asked, cupy.asked, torch.cuda.memory_reserved(0) >> 20)") == (
            "[True] ['free', 'free'] 32\n"
        )
        assert await scene.trim() == 0

    asyncio.run(play())


def test_nothing_is_imported_and_no_name_is_left(scene: Scene) -> None:
    look = (
        "import sys; print(sorted({'torch', 'cupy', 'aliquot'} & set(sys.modules)), sorted(globals().keys() - before))"
    )

    async def play() -> None:
        await scene.start()
        await scene.run("before = None; before = set(globals()) | {'before', 'sys'}")
        assert await scene.trim() == 0
        assert await scene.run(look) == "[] []\n"

    asyncio.run(play())


def test_users_see_nothing_of_it(scene: Scene) -> None:
    """The link and the front see no count, no history, no `_`, no hook, no status."""
    hooks = (
        "import torch\nseen = []\nip = get_ipython()\n"
        "for name in ('pre_execute', 'pre_run_cell', 'post_execute', 'post_run_cell'):\n"
        "    ip.events.register(name, lambda *_, name=name: seen.append(name))\n"
    )

    async def play() -> None:
        await scene.start()
        await scene.run(hooks, store_history=True)
        await scene.run("41 + 1", store_history=True)
        async with a_client(scene.record) as other:
            await scene.run("seen.clear()", store_history=True)
            before = len(scene.gateway.messages)
            assert await scene.trim() == 64 * MIB
            assert await scene.trim() == 0
            cell = scene.gateway.execute(
                "print(seen[2:], _, ip.execution_count, len(ip.history_manager.input_hist_raw))"
            )
            await scene.gateway.done(cell)
            # seen[:2]: the end of the cell that cleared it.
            want = "['pre_execute', 'pre_run_cell'] 42 4 4\n"
            assert scene.gateway.outputs(cell) == want
            assert {parent(m) for m in scene.gateway.messages[before:]} == {cell}
            seen: list[dict[str, Any]] = []
            while not seen or parent(seen[-1]) != cell or seen[-1]["content"].get("execution_state") != "idle":
                seen.append(await asyncio.wait_for(other.get_iopub_msg(), SECONDS))
            assert not [m for m in seen if "aliquot_own" in m["parent_header"]]

    asyncio.run(play())


def test_what_threads_print_still_goes_to_their_cell(scene: Scene) -> None:
    code = (
        "import threading, os, time, torch\n"
        "def late():\n"
        "    while not os.path.exists({path!r}): time.sleep(0.01)\n"
        "    print('late', flush=True)\n"
        "threading.Thread(target=late).start()"
    )

    async def play() -> None:
        await scene.start()
        path = scene.modules / "go"
        cell = scene.gateway.execute(code.format(path=str(path)))
        await scene.gateway.done(cell)
        assert await scene.trim() == 64 * MIB
        path.touch()
        await until(lambda: scene.gateway.outputs(cell) == "late\n")

    asyncio.run(play())


def test_a_kernel_with_an_open_cell_is_left_alone(scene: Scene) -> None:
    async def play() -> None:
        await scene.start()
        await scene.run("import torch")
        cell = scene.gateway.execute("input()")
        await scene.gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        scene.ask()
        scene.gateway.request("input_reply", {"value": ""}, "stdin")
        await scene.gateway.done(cell)
        assert await scene.run("print(torch.asked)") == "[]\n"
        assert not scene.agent.asked("trimmed")
        assert await scene.trim() == 64 * MIB

    asyncio.run(play())


def test_an_arriving_cell_is_not_kept_waiting_by_further_steps(scene: Scene) -> None:
    """Torch returns its cache slowly; the cell that came meanwhile runs before CuPy's turn."""
    slow = (
        "import torch, cupy, os, time\n"
        "def empty_cache():\n"
        "    open({begun!r}, 'w').close()\n"
        "    while os.path.exists({place!r}): time.sleep(0.005)\n"
        "    torch.asked.append('slow')\n"
        "torch.cuda.empty_cache = empty_cache\n"
    )

    async def play() -> None:
        await scene.start()
        begun, place = scene.modules / "begun", scene.record.folder / "k" / "trim"
        await scene.run(slow.format(begun=str(begun), place=str(place)))
        while not begun.exists():
            await until(lambda: scene.agent.work == 0)
            scene.ask()
            await asyncio.sleep(0.05)
        assert await scene.run("print(torch.asked, cupy.asked)") == "['slow'] []\n"
        await until(lambda: scene.agent.asked("trimmed"))

    asyncio.run(play())


@pytest.mark.parametrize(
    "breakage",
    [
        "class Odd:\n    def __getattr__(self, name): raise SystemExit\nimport sys; sys.modules['torch'] = Odd()",
        "import sys; sys.modules['torch'] = None",
        "import torch\ndef empty_cache(): raise KeyboardInterrupt\ntorch.cuda.empty_cache = empty_cache",
    ],
)
def test_a_framework_that_fails_harms_neither_the_kernel_nor_the_other(scene: Scene, breakage: str) -> None:
    async def play() -> None:
        await scene.start()
        await scene.run(f"import cupy\n{breakage}")
        assert await scene.trim() == 8 * MIB
        assert await scene.run("print('on')") == "on\n"

    asyncio.run(play())


def test_a_restarted_kernel_can_be_asked_again(scene: Scene) -> None:
    async def play() -> None:
        await scene.start()
        await scene.run("import torch")
        assert await scene.trim() == 64 * MIB
        scene.gateway.request("shutdown_request", {"restart": True}, "control")  # its idle may be lost with the process
        await scene.gateway.until(lambda event: getattr(event, "state", "") == "ended")
        launch = ipykernel(scene.record, env={"PYTHONPATH": str(scene.modules)})
        await client.spawn(scene.record, launch)
        await scene.gateway.done(scene.gateway.request("kernel_info_request", {}))
        await scene.run("import torch")
        assert await scene.trim() == 64 * MIB

    asyncio.run(play())


def test_kernels_of_other_makers_get_no_message_of_ours(scene: Scene, tmp_path: Path) -> None:
    """A kernel built from ipykernel's base notes all requests that it gets."""
    program = tmp_path / "other.py"
    program.write_text(
        "import sys\n"
        "from ipykernel.kernelapp import IPKernelApp\n"
        "from ipykernel.kernelbase import Kernel\n"
        "class Other(Kernel):\n"
        "    implementation, implementation_version, banner = 'other', '1', ''\n"
        "    language_info = {'name': 'other', 'mimetype': 'text/plain', 'file_extension': '.o'}\n"
        "    asked = []\n"
        "    async def do_execute(self, code, silent, *args, **kwargs):\n"
        "        self.asked.append(code)\n"
        "        content = {'name': 'stdout', 'text': repr(self.asked)}\n"
        "        self.send_response(self.iopub_socket, 'stream', content)\n"
        "        return {'status': 'ok', 'execution_count': 1, 'payload': [], 'user_expressions': {}}\n"
        "IPKernelApp.launch_instance(argv=['-f', sys.argv[1]], kernel_class=Other)\n"
    )

    async def play() -> None:
        await scene.start([sys.executable, str(program)])
        assert await scene.run("a") == "['a']"
        for _ in range(3):
            await until(lambda: scene.agent.work == 0)
            scene.ask()
            await scene.gateway.done(scene.gateway.request("kernel_info_request", {}))
        assert await scene.run("b") == "['a', 'b']"
        assert not scene.agent.asked("trimmed")

    asyncio.run(play())


def test_a_debugged_kernel_is_left_alone(scene: Scene) -> None:
    async def play() -> None:
        await scene.start()
        await scene.run("import torch")
        content = {"type": "request", "seq": 1, "command": "attach", "arguments": {}}
        scene.gateway.request("debug_request", content, "control")
        await until(lambda: scene.agent.work == 0)
        scene.ask()
        assert await scene.run("print(torch.asked)") == "[]\n"

    asyncio.run(play())


def test_one_that_is_to_be_left_alone_is_never_offered(scene: Scene) -> None:
    async def play() -> None:
        await scene.start(trim=False)
        await scene.run("1")
        await until(lambda: scene.agent.work == 0)
        assert not scene.agent.asked("trimmer")

    asyncio.run(play())


def test_steps_are_given_up_once_a_request_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    found = kernel_side.trim({"while": str(tmp_path / "gone")})
    assert found == {"status": "ok", "bytes": 0, "frameworks": {}, "gave_way": True}
