"""What `instructor` does with a server: `python flows.py URL MODEL`, one line for each flow and mode."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import instructor
import openai
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel, Field, field_validator

SECONDS = 120
TOKENS = 400
MODES = {
    "tools": instructor.Mode.TOOLS,
    "json schema": instructor.Mode.JSON_SCHEMA,
    "responses": instructor.Mode.RESPONSES_TOOLS,
}
STRUCTURED = ("tools", "json schema")
ASKED: list[Any] = [
    {"role": "system", "content": "Take the facts out of the text."},
    {"role": "user", "content": "Ada Lovelace, 36, wrote the first program. She is an admin."},
]


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=150)
    role: Literal["admin", "guest"] | None


class Team(BaseModel):
    """People who work together."""

    name: str = Field(max_length=40)
    people: list[Person] = Field(max_length=2)
    lead: Person | None


class Weather(BaseModel):
    """The weather in a city."""

    city: str = Field(max_length=30)
    unit: Literal["celsius", "fahrenheit"]


class Search(BaseModel):
    """Find documents."""

    query: str = Field(max_length=30)


class Session:
    """One client in one mode, and how many answers it got."""

    def __init__(self, url: str, model: str, mode: str) -> None:
        self.model = model
        self.mode = mode
        self.raw = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=SECONDS)
        self.url = url
        self.client = instructor.from_openai(self.raw, mode=MODES[mode])
        self.answers = 0
        self.client.on("completion:response", self._count)

    def _count(self, *_: Any, **__: Any) -> None:
        self.answers += 1

    def asked(self, kind: Any, **fields: Any) -> dict[str, Any]:
        """The fields of a request; the APIs name the limit of an answer differently."""
        limit = "max_output_tokens" if self.mode == "responses" else "max_tokens"
        known = {"model": self.model, "messages": list(ASKED), "response_model": kind, "max_retries": 1, limit: TOKENS}
        return {**known, **fields}


def whole(session: Session) -> None:
    """An object of a class."""
    person = session.client.chat.completions.create(**session.asked(Person))
    assert isinstance(person, Person), person
    assert session.answers == 1, session.answers
    if session.model == "scripted":
        assert person.model_dump() == {"name": "", "age": 0, "role": "admin"}, person


def nested(session: Session) -> None:
    """An object with lists, alternatives and definitions in it."""
    team = session.client.chat.completions.create(**session.asked(Team))
    assert isinstance(team, Team), team


def with_answer(session: Session) -> None:
    """The object beside the answer that it was taken out of."""
    person, answer = session.client.chat.completions.create_with_completion(**session.asked(Person))
    assert isinstance(person, Person), person
    assert answer.usage.total_tokens > 0, answer


def once_more(session: Session) -> None:
    """An object that the caller's own rule refuses is asked for again, with what was wrong with it."""
    refused: list[str] = []

    class Checked(Person):
        @field_validator("name")
        @classmethod
        def refuse_the_first(cls, name: str) -> str:
            if not refused:
                refused.append(name)
                raise ValueError("the name must be another one")
            return name

    checked = session.client.chat.completions.create(**session.asked(Checked, max_retries=3))
    assert isinstance(checked, Checked), checked
    assert (len(refused), session.answers) == (1, 2), (refused, session.answers)


def never(session: Session) -> None:
    """What is never right ends after as many answers as are allowed."""

    class Impossible(Person):
        @field_validator("name")
        @classmethod
        def refuse(cls, name: str) -> str:
            raise ValueError("no name is right")

    try:
        session.client.chat.completions.create(**session.asked(Impossible, max_retries=2))
    except InstructorRetryException:
        assert session.answers in (2, 3), session.answers
    else:
        raise AssertionError("it was taken")


def partial(session: Session) -> None:
    """An object that grows while it is generated."""
    seen = list(session.client.chat.completions.create_partial(**session.asked(Person)))
    assert len(seen) > 1, seen
    last = seen[-1]
    assert isinstance(last.age, int), last
    assert last.name is not None, last


def several(session: Session) -> None:
    """Objects one after the other, out of a stream."""
    fields: dict[str, Any] = {}
    if session.model == "scripted":
        tasks = '{"tasks": [{"name": "Ada", "age": 36, "role": null}, {"name": "Bo", "age": 5, "role": "guest"}]}'
        fields["messages"] = [{"role": "user", "content": f"!CALL IterablePerson {tasks}"}]
    people = list(session.client.chat.completions.create_iterable(**session.asked(Person, **fields)))
    assert all(isinstance(person, Person) for person in people), people
    assert session.model != "scripted" or [person.age for person in people] == [36, 5], people


def in_async(session: Session) -> None:
    """The async client does the same."""

    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=session.url, api_key="none", max_retries=0, timeout=SECONDS) as raw:
            client = instructor.from_openai(raw, mode=MODES[session.mode])
            return await client.chat.completions.create(**session.asked(Person))

    assert isinstance(asyncio.run(ask()), Person)


def parallel(session: Session) -> None:
    """Calls of one tool and of another, in one turn."""
    client = instructor.from_openai(session.raw, mode=instructor.Mode.PARALLEL_TOOLS)
    words = '!CALL Weather {"city": "Oslo", "unit": "celsius"}\n!CALL Search {"query": "llamas"}'
    fields = session.asked(Iterable[Weather | Search], messages=[{"role": "user", "content": words}])
    found = list(client.chat.completions.create(**fields))
    assert found == [Weather(city="Oslo", unit="celsius"), Search(query="llamas")], found


FLOWS: tuple[tuple[Callable[[Session], None], tuple[str, ...]], ...] = (
    (whole, tuple(MODES)),
    (nested, tuple(MODES)),
    (with_answer, tuple(MODES)),
    (once_more, tuple(MODES)),
    (never, tuple(MODES)),
    (partial, tuple(MODES)),
    (several, STRUCTURED),
    (in_async, tuple(MODES)),
    (parallel, ("tools",)),
)
LEFT_OUT = {
    # Under a schema that model writes an empty list, out of which the package makes no objects.
    ("scripted", several, "json schema"),
    # The package leaves it to the model whether it calls, and a small one may not.
    ("smollm", parallel, "tools"),
}


def main(url: str, model: str) -> int:
    """Run every flow in its modes."""
    failed = 0
    logging.getLogger("instructor").setLevel(logging.CRITICAL)
    for flow, modes in FLOWS:
        for mode in modes:
            if (model, flow, mode) in LEFT_OUT:
                continue
            try:
                flow(Session(url, model, mode))
                print("ok    ", model, flow.__name__, mode, flush=True)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong with a flow is its result
                failed += 1
                print("FAILED", model, flow.__name__, mode, type(error).__name__, str(error)[:1500], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
