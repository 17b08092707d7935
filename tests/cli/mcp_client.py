"""How tests talk to an MCP server, and start one."""

import re
import subprocess
import sys
from contextlib import contextmanager

from mcp import StdioServerParameters

from tests.conftest import ROOT

BEES = "I keep bees in Graz."
EMBED = "rmm_core.testing:HashEmbedder"


async def call(client, tool, **arguments):
    """What a tool returned: as data, and as a model reads it."""
    result = await client.call_tool(tool, arguments)
    text = "\n".join(part.text for part in result.content)
    assert not result.is_error, text
    return result.structured_content, text


async def failing(client, tool, **arguments):
    """What a model reads of a tool that failed."""
    result = await client.call_tool(tool, arguments)
    (part,) = result.content
    assert result.is_error, part.text
    assert result.structured_content is None
    return part.text


def command(place, *options, embed=EMBED):
    return [sys.executable, "-m", "rmm_cli", "mcp", str(place), "--embed", embed, *options]


def on_stdio(place, *options, **models):
    program, *arguments = command(place, "--user", "ann", *options, **models)
    return StdioServerParameters(command=program, args=arguments, cwd=ROOT)


@contextmanager
def started(*options, **models):
    """A server in a process of its own, which ends with the block."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command(*options, **models), cwd=ROOT, text=True, **pipes) as server:
        try:
            yield server
        finally:
            server.kill()


def address(server):
    """Where a server says that it listens."""
    return re.search(r"http://\S+/mcp", server.stderr.readline())[0]
