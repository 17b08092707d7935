"""What tests of agents share."""

import pytest
from langchain.agents import create_agent
from langchain.agents import middleware as stock
from langchain.tools import tool
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_rmm import RMMMiddleware

ANN = {"configurable": {"thread_id": "t", "user_id": "ann"}}
SECRET = "I am allergic to hazelnuts."
LATER = pytest.mark.skipif(not hasattr(stock, "ModelRetryMiddleware"), reason="comes with langchain 1.1")


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city} [1]."


def builder(memory, model):
    """Builds agents with memory: other middleware first, then options of create_agent."""

    def build(*others, tools=(), saver=None, **options):
        middleware = [*others, RMMMiddleware(memory)]
        return create_agent(model, list(tools), middleware=middleware, checkpointer=saver or InMemorySaver(), **options)

    return build


def call(tool_name="weather", **arguments):
    return AIMessage("", tool_calls=[{"name": tool_name, "args": arguments or {"city": "Graz"}, "id": "call-1"}])


def ask(agent, text, config=ANN, **more):
    said = text if isinstance(text, HumanMessage) else ("user", text)
    return agent.invoke({"messages": [said]} | more, config)["messages"][-1]


def turns(memory, user="ann", session="t"):
    return [(t.role, t.text) for t in memory.store.turns(user, session)]


def shown(model, call=-1):
    """The system message of a request."""
    (system,) = [m for m in model.history[call] if isinstance(m, SystemMessage)]
    assert model.history[call][0] is system
    return system.text
