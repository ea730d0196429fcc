"""`doctor mcp`: the doctor as tools of an agent."""

from __future__ import annotations

import click

from rlhfdoctor.extras import require_mcp


@click.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
def mcp(folders: tuple[str, ...]) -> None:
    """Serve the doctor's tools to an agent, by the Model Context Protocol on standard input and output.

    An agent (an editor, an assistant) starts this command itself and calls analyze, estimate, explain, patch and
    trace_summary. It can have files read within the folders DIR and nowhere else, by default the present one; nothing
    is ever written: a patch is shown as a diff. Needs pip install 'rlhfdoctor[mcp]'.

    \b
    Examples:
      doctor mcp
      doctor mcp /shared/runs /home/me/experiments
      {"mcpServers": {"doctor": {"command": "doctor", "args": ["mcp", "/shared/runs"]}}}   # in the agent's settings
    """
    require_mcp()
    from rlhfdoctor.agents.server import serve

    serve(folders or (".",))
