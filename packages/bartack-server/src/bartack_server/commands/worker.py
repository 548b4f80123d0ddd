"""`bartack worker`: a process that works on queued runs, until SIGINT or SIGTERM."""

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

import typer

from bartack.agent import Agent
from bartack.app.agent_setup import load_agents, new_agent, resolve_setup
from bartack.app.errors import with_store_hint
from bartack.app.mcp_servers import chosen_servers
from bartack.app.notices import plural
from bartack.app.platform import require_posix, run_async
from bartack.app.queues import QUEUE, opened_queue
from bartack.app.safe_text import safe_line
from bartack.app.sessions import configured_store, opened_store
from bartack.cli import options
from bartack.cli.options import export_for, exporting
from bartack.cli.output import note
from bartack.nouns.errors import StoreError
from bartack.queues import Limit
from bartack.queues.run_queue import MAX_DEATHS
from bartack.store.address import StoreAddress
from bartack_server.workers import Worker

app = options.new_app("Run a worker that executes queued runs.")


@app.command(no_args_is_help=False)
def worker(
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents",
            metavar="MODULE:NAME",
            help="Agent, list of agents, or dict by name. Default: one named bartack, with the options below.",
        ),
    ] = None,
    *,
    model: options.ModelOption = None,
    tool: options.ToolOption = None,
    mcp: options.McpOption = None,
    tools: Annotated[
        Literal["files"] | None,
        typer.Option("--tools", help="Enable tools for files and commands in this directory."),
    ] = None,
    instructions: options.InstructionsOption = None,
    store: options.StoreOption = None,
    queue: options.QueueOption = QUEUE,
    engine: options.EngineOption = "store",
    slots: Annotated[int, typer.Option(min=1, help="Maximum number of live runs.")] = 10,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="BY[:NAME]=COUNT[/SECONDS]",
            help="Limit the runs of each user, model or provider (or only of NAME) across all workers: COUNT at once, "
            "or COUNT starts within SECONDS. May be repeated.",
        ),
    ] = None,
    drain: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the current steps when stopping.")
    ] = 20.0,
    max_block: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", help="Exit once a call has blocked all runs of the worker for this long."
        ),
    ] = 30.0,
    max_deaths: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Set a run aside once this many workers died while running it.")
    ] = MAX_DEATHS,
    otel: options.OtelOption = None,
) -> None:
    """Execute runs that 'bartack run --detach', Agent.submit() or a web server have queued in a store.

    Start as many workers as needed, on any machine that can reach the store. Ctrl-C or SIGTERM stops a worker: each run
    completes its current step, and another worker continues it. A second Ctrl-C interrupts the steps.
    """
    with options.usage_errors():
        require_posix(
            "Workers", "On Windows, work in WSL; a worker on another machine can use the same PostgreSQL store."
        )
        limits = [Limit.parse(text) for text in limit or ()]
        setup = None
        served: dict[str, Agent[Any, Any]] = {}
        if agents is None:
            setup = resolve_setup(
                model=model,
                tools=tool or (),
                files=tools == "files",
                instructions=instructions,
                store=store,
                servers=chosen_servers(mcp) if mcp else {},
            )
        else:
            served = load_agents(agents)
        address = configured_store(store)
        export = export_for(otel)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(opened_store(address))
            telemetry = None if export is None else export.telemetry
            if setup is not None:
                own = new_agent(setup, opened, approver=None, telemetry=telemetry)
                served[own.name or ""] = own
            for agent in served.values():
                await stack.enter_async_context(agent)
            jobs = await stack.enter_async_context(
                opened_queue(address, opened, queue, engine=engine, limits=limits, max_deaths=max_deaths)
            )
            worker = Worker(
                jobs,
                served,
                opened,
                slots=slots,
                drain_s=drain,
                telemetry=telemetry,
                exit_when_blocked_s=max_block,
            )
            await _work(worker, address)

    with exporting(export):
        try:
            run_async(work())
        except StoreError as error:
            raise with_store_hint(error, is_server=address.kind == "postgres") from None


async def _work(worker: Worker, address: StoreAddress) -> None:
    loop = asyncio.get_running_loop()
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            note("bartack: stopping; runs complete their current steps", is_dim=True)
            worker.stop()
        else:
            worker.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    names = safe_line(", ".join(worker.info.agents))
    note(f"bartack: worker {worker.info.id} on {address.display}, for {names}", is_dim=True)
    await worker.run()
    note(f"bartack: worked on {plural(worker.done, 'run')}", is_dim=True)
