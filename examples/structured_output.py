"""Get the answer as a typed value. An answer that does not match is returned to the model with the error."""

import asyncio

import msgspec

from bartack.agent import Agent
from bartack.models import ScriptedModel


class City(msgspec.Struct):
    """The output type."""

    name: str
    country: str
    people: int


async def main() -> None:
    model = ScriptedModel(
        ['{"name": "Paris", "country": "France", "people": "many"}', '{"name":"Paris","country":"France","people":2}']
    )
    agent = Agent(model, output_type=City)
    result = await agent.run("Which city is the capital of France?")
    city: City = result.output
    print(city)
    print(result.messages[2].text.splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())
