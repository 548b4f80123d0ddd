"""`bartack acp`: the agent inside an editor that speaks the Agent Client Protocol, on stdin and stdout."""

from collections.abc import Sequence

from bartack.agent import Agent
from bartack.app.agent_setup import AgentSetup, command_options, new_agent, private_files, resolve_setup
from bartack.app.platform import run_async
from bartack.app.sessions import opened_store
from bartack.cli import options
from bartack.tools.mcp import McpServer
from bartack_code.editors.acp_server import EditorAgent, EditorApprover
from bartack_code.editors.editor_connection import serve_editor
from bartack_code.editors.editor_runtime import EditorRuntime

app = options.new_app("Run as the agent of an editor.")


@app.command(no_args_is_help=False)
def acp(
    model: options.ModelOption = None,
    *,
    tool: options.ToolOption = None,
    instructions: options.InstructionsOption = None,
    store: options.StoreOption = None,
) -> None:
    """Run as the agent of an editor that supports the Agent Client Protocol, such as Zed.

    The editor starts this command and communicates with it over stdin and stdout. The agent works in the directory of
    the editor's project. It reads and writes files and runs commands through the editor if the editor supports this,
    and asks there before each change.
    """
    with options.usage_errors():
        setup = resolve_setup(model=model, tools=tool or (), files=True, instructions=instructions, store=store)
    run_async(_serve(setup))


async def _serve(setup: AgentSetup) -> None:
    async with opened_store(setup.address) as store:

        def make_agent(runtime: EditorRuntime, approver: EditorApprover, servers: Sequence[McpServer]) -> Agent:
            return new_agent(
                setup, store, approver=approver, approval=approver.policy, runtime=runtime, servers=servers
            )

        await serve_editor(EditorAgent(make_agent, store, private_files(store), command_options()))
