"""Kernels behind relays, with Jupyter clients and with links, work as without relays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

from relay_house import Gateway, House, a_client, ipykernel, parent, soon, until

from jupyter_aliquot.provisioner.relay.client import control as client


async def run(kernel: Any, code: str) -> list[dict[str, Any]]:
    """Return the outputs of a cell, by a client of the front."""
    outputs: list[dict[str, Any]] = []
    reply = await kernel.execute_interactive(code, timeout=90, output_hook=outputs.append)
    assert reply["content"]["status"] in ("ok", "error")
    return outputs


def text(outputs: list[dict[str, Any]]) -> str:
    return "".join(m["content"]["text"] for m in outputs if m["msg_type"] == "stream")


def test_a_client_of_the_front_executes(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(gateway=None)
        async with a_client(record) as kernel:
            assert text(await run(kernel, "print('heard')")) == "heard\n"
            errors = [m["content"]["ename"] for m in await run(kernel, "1/0") if m["msg_type"] == "error"]
            assert errors == ["ZeroDivisionError"]
            kernel.hb_channel.start()
            kernel.hb_channel.unpause()
            await until(kernel.hb_channel.is_beating)

    asyncio.run(scene())


def test_a_link_executes_and_its_replies_come_to_it_alone(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        one = await Gateway(record, "one").connect()
        other = await Gateway(record, "other").connect()
        cell = one.execute("print('once')")
        await one.done(cell)
        await other.idle(cell)
        assert one.outputs(cell) == other.outputs(cell) == "once\n"
        assert [m["msg_type"] for m in one.messages if m["channel"] == "shell"] == ["execute_reply"]
        assert not [m for m in other.messages if m["channel"] == "shell"]

    asyncio.run(scene())


def test_a_front_client_and_a_link_see_each_others_cells(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        async with a_client(record) as kernel:
            await run(kernel, "print('from the front')")
            await gateway.until(lambda m: isinstance(m, dict) and m["content"].get("text") == "from the front\n")
            cell = gateway.execute("print('from the link')")
            while (found := await soon(kernel.get_iopub_msg()))["content"].get("text") != "from the link\n":
                pass
            assert parent(found) == cell

    asyncio.run(scene())


def test_input_comes_back_to_who_ran_the_cell(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        cell = gateway.execute("print(input('name? ') + '!')")
        asked = await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        assert (asked["channel"], asked["to"], asked["content"]["prompt"]) == ("stdin", gateway.name, "name? ")
        gateway.request("input_reply", {"value": "Ada"}, "stdin")
        await gateway.idle(cell)
        assert gateway.outputs(cell) == "Ada!\n"
        async with a_client(record) as kernel:
            kernel.execute("print(input('again? '))", allow_stdin=True)
            assert (await soon(kernel.get_stdin_msg()))["content"]["prompt"] == "again? "
            kernel.input("Bob")
            assert (await soon(kernel.get_shell_msg()))["content"]["status"] == "ok"

    asyncio.run(scene())


def test_interrupts_by_message_and_by_signal_stop_a_cell(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        for interrupt in (
            lambda: gateway.request("interrupt_request", {}, "control"),
            lambda: os.killpg(record.kernel.pid, signal.SIGINT) if record.kernel else None,
        ):
            cell = gateway.execute("print('on', flush=True)\nimport time\nfor _ in range(6000): time.sleep(0.01)")
            await gateway.until(lambda m, cell=cell: parent(m) == cell and m["msg_type"] == "stream")
            interrupt()
            await gateway.idle(cell)
            errors = [m["content"]["ename"] for m in gateway.messages if parent(m) == cell and m["msg_type"] == "error"]
            assert errors == ["KeyboardInterrupt"]

    asyncio.run(scene())


def test_comms_answer_while_the_kernel_is_theirs(a_house: House) -> None:
    code = """
from ipykernel.comm import Comm
def opened(comm, message):
    @comm.on_msg
    def _(m): comm.send({'twice': 2 * m['content']['data']['n']}, buffers=[bytes(3) + b'x'])
get_ipython().kernel.comm_manager.register_target('twice', opened)
"""

    async def scene() -> None:
        gateway = await Gateway(await a_house.kernel()).connect()
        await gateway.idle(gateway.execute(code))
        await gateway.idle(gateway.request("comm_open", {"comm_id": "c", "target_name": "twice", "data": {}}))
        gateway.request("comm_msg", {"comm_id": "c", "data": {"n": 21}})
        answer = await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "comm_msg")
        assert answer["content"]["data"] == {"twice": 42}
        assert [bytes(b) for b in answer["buffers"]] == [b"\0\0\0x"]

    asyncio.run(scene())


def test_a_page_that_reads_widgets_again_is_no_activity(a_house: House) -> None:
    control, slider = (
        "jupyter.widget.control",
        "import ipywidgets; a_slider = ipywidgets.IntSlider(); print(a_slider.comm.comm_id)",
    )

    async def scene() -> None:
        gateway = await Gateway(await a_house.kernel()).connect()
        cell = gateway.execute(slider)
        await gateway.idle(cell)
        widget = gateway.outputs(cell).strip()
        told = await gateway.until(lambda event: isinstance(event, client.Activity) and event.open == 0)
        want_last = told.last
        opening = {"comm_id": "c", "target_name": control, "data": {}}
        await gateway.idle(gateway.request("comm_open", opening, metadata={"version": "1.0.0"}))
        reads = [("c", "request_states"), (widget, "request_state")]
        for comm, method in reads:
            read = gateway.request("comm_msg", {"comm_id": comm, "data": {"method": method}})
            await gateway.idle(read)
            answers = [
                m["content"]["data"]["method"]
                for m in gateway.messages
                if parent(m) == read and m["msg_type"] == "comm_msg"
            ]
            assert answers in (["update_states"], ["update"]), "the kernel answered"
        await gateway.idle(gateway.request("comm_close", {"comm_id": "c", "data": {}}))
        gateway.request("kernel_info_request", {})
        told = await gateway.until(lambda event: isinstance(event, client.Activity) and event.open == 0)
        assert (told.work, told.last) == (0, want_last)
        moved = {"method": "update", "state": {"value": 7}}
        gateway.request("comm_msg", {"comm_id": widget, "data": moved})

        def is_work(event: object) -> bool:  # or was: the relay tells its state once for all that one turn brought
            return isinstance(event, client.Activity) and (event.work == 1 or event.last > want_last)

        await gateway.until(is_work)

    asyncio.run(scene())


def test_control_answers_while_a_cell_runs(a_house: House) -> None:
    async def scene() -> None:
        gateway = await Gateway(await a_house.kernel()).connect()
        cell = gateway.execute("input()")
        await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        asked = gateway.request("kernel_info_request", {}, "control")
        reply = await gateway.until(lambda m: parent(m) == asked and m["channel"] == "control")
        assert reply["content"]["status"] == "ok"
        gateway.request("input_reply", {"value": ""}, "stdin")
        await gateway.idle(cell)

    asyncio.run(scene())


def test_a_large_buffer_passes_whole_in_both_directions(a_house: House) -> None:
    code = """
import hashlib
from ipykernel.comm import Comm
def opened(comm, message):
    @comm.on_msg
    def _(m):
        data = m['buffers'][0]
        comm.send({'hash': hashlib.sha256(data).hexdigest()}, buffers=[data])
get_ipython().kernel.comm_manager.register_target('large', opened)
"""

    async def scene() -> None:
        gateway = await Gateway(await a_house.kernel()).connect()
        await gateway.idle(gateway.execute(code))
        await gateway.idle(gateway.request("comm_open", {"comm_id": "l", "target_name": "large", "data": {}}))
        data = os.urandom(1 << 20) * 50
        message = gateway.session.msg("comm_msg", {"comm_id": "l", "data": {}})
        gateway.link.send("shell", gateway.name, [*gateway.session.serialize(message), data])
        answer = await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "comm_msg")
        assert bytes(answer["buffers"][0]) == data

    asyncio.run(scene())


def test_each_subscriber_of_the_front_is_welcomed(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        for _ in range(2):
            async with a_client(record) as kernel:
                kernel.iopub_channel.socket.unsubscribe(b"")
                kernel.iopub_channel.socket.subscribe(b"kernel.")
                await until_welcomed(kernel)

    async def until_welcomed(kernel: Any) -> None:
        while (await soon(kernel.get_iopub_msg()))["content"].get("subscription") != "kernel.":
            pass

    asyncio.run(scene())


def test_a_restart_keeps_front_and_links_and_forgets_the_old_kernel(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        async with a_client(record) as kernel:
            await run(kernel, "x = 1")
            cell = gateway.execute("import os; os.kill(os.getpid(), 9)")
            ended = await gateway.until(lambda e: getattr(e, "state", "") == "ended")
            assert ended.ended["signal"] == 9
            late = gateway.request("shutdown_request", {"restart": True}, "control")
            waiting = gateway.execute("print('x' in dir())")
            process = await client.spawn(record, ipykernel(record))
            await gateway.idle(waiting)
            assert gateway.outputs(waiting) == "False\n"
            assert text(await run(kernel, "print('again')")) == "again\n"
            assert client.read_relay_record(record.folder).kernel == client.ProcessId(
                process.pid, process.start_time_ticks
            )
            assert not [m for m in gateway.messages if parent(m) in (late,)]
            assert not [m for m in gateway.messages if parent(m) == cell and m["msg_type"] == "execute_reply"]

    asyncio.run(scene())


def test_a_kernel_is_started_as_by_its_asker(a_house: House) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = """
import json, os, resource, signal
print(json.dumps({
  'nofile': resource.getrlimit(resource.RLIMIT_NOFILE), 'umask': os.umask(0), 'cwd': os.getcwd(), 'x': os.environ['X'],
  'session': os.getsid(0) == os.getpid(), 'blocked': list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
  'hup': signal.getsignal(signal.SIGHUP) == signal.SIG_DFL, 'parent': os.environ['JPY_PARENT_PID'],
  'files': [os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)],
  'others': sorted(t for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')
                   for t in [os.readlink(f'/proc/self/fd/{n}')] if 'relay' in t),
}))
"""

    async def scene() -> None:
        record = await a_house.relay()
        limits = {resource.RLIMIT_NOFILE: (min(soft, 700), hard)}
        cwd = str(a_house.runtime.path)
        launch = ipykernel(record, env={"X": "é\udcff"}, cwd=cwd, rlimits=limits, umask=0o027)
        reader, writer = os.pipe()
        try:
            await client.spawn(record, launch, {2: writer})
        finally:
            os.close(writer)
        gateway = await Gateway(record).connect()
        cell = gateway.execute(code)
        await gateway.idle(cell)
        found = json.loads(gateway.outputs(cell))
        os.close(reader)
        assert found["nofile"] == [min(soft, 700), hard]
        assert (found["umask"], found["cwd"], found["x"]) == (0o027, cwd, "é\udcff")
        assert (found["session"], found["blocked"], found["hup"], found["parent"]) == (True, [], True, "1")
        assert found["files"][:2] == ["/dev/null", str(record.kernel_log)]
        assert found["files"][2].startswith("pipe:")
        assert found["others"] == [str(record.kernel_log)]

    asyncio.run(scene())
