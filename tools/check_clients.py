#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs unmodified clients against `tessera serve`: openai, litellm, langchain-openai, curl, and a web page in Chromium.

Two servers are started on free ports of 127.0.0.1: one with --model, an API key and --cors, and one with a model that is
written by this script and calls a function. Texts are compared with those of a plain HTTP request. Requires the packages
openai, litellm and langchain-openai (tools/requirements.txt), and the programs curl and chromium.

The exit status is 1 if a check fails, also if its client is not installed.

Example:
  tools/check_clients.py --only openai,curl
"""
from __future__ import annotations

import argparse
import asyncio
import enum
import http.server
import importlib.metadata
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Literal, Optional

from serve_program import ServeProgram, print_table, use_only_loopback, write_weather_model

ROOT = Path(__file__).resolve().parent.parent
KEY = "key-of-check-clients"
QUESTION = [{"role": "user", "content": "What is an index?"}]
LENGTH = 24
WEATHER = [{"role": "user", "content": "How is the weather?"}]
TOWNS = ["Zürich", "Bern", "Genève"]
WEATHER_TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a town, now.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string", "enum": TOWNS}}, "required": ["town"],
                   "additionalProperties": False}}}
CLOCK_TOOL = {"type": "function", "function": {
    "name": "get_time", "description": "The time in a zone.",
    "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
                   "additionalProperties": False}}}

CHECKS = []  # (client, title, function)


def check(client, title):
    def add(function):
        CHECKS.append((client, title, function))
        return function
    return add


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def require_equal(a, b):
    require(a == b, f"{a!r} instead of {b!r}")


class Setup:
    """The two servers, and the texts of --model for QUESTION (by chat and by completion)."""

    def __init__(self, options, folder, origin):
        self.text = ServeProgram(options.program, options.model, ["--template", options.template, "--alias", "text", "--cors", origin],
                                 key=KEY)
        path = os.path.join(folder, "weather.gguf")
        write_weather_model(path)
        self.tools = ServeProgram(options.program, path, ["--temperature", "0"])
        self.folder, self.origin = folder, origin
        status, answer = self.text.post("/v1/chat/completions",
                                        {"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH})
        require(status == 200, f"the first request failed: {answer}")
        self.chat_text = answer["choices"][0]["message"]["content"]
        self.prompt_tokens = answer["usage"]["prompt_tokens"]
        answer = self.text.post("/v1/completions", {"prompt": "The index", "temperature": 0, "max_tokens": LENGTH})[1]
        self.completion_text = answer["choices"][0]["text"]

    def end(self):
        return self.text.end() + self.tools.end()


# openai

def openai_client(server, asynchronous=False, **options):
    import openai
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return kind(base_url=server.url + "/v1", api_key=server.key or "none", max_retries=0, timeout=60, **options)


CHAT = {"model": "text", "messages": QUESTION, "temperature": 0, "max_tokens": LENGTH}


@check("openai", "models.list")
def _(s):
    with openai_client(s.text) as client:
        require_equal([m.id for m in client.models.list()], ["text"])


@check("openai", "chat")
def _(s):
    with openai_client(s.text) as client:
        answer = client.chat.completions.create(**CHAT)
        require_equal(answer.choices[0].message.content, s.chat_text)
        require_equal(answer.choices[0].finish_reason, "length")
        require_equal(answer.usage.completion_tokens, LENGTH)
        require_equal(answer.usage.total_tokens, LENGTH + s.prompt_tokens)
        answer = client.chat.completions.create(**CHAT, n=2, logprobs=True, top_logprobs=3)
        require_equal([c.message.content for c in answer.choices], [s.chat_text] * 2)
        joined = b"".join(bytes(t.bytes) for t in answer.choices[0].logprobs.content)
        require_equal(joined.decode(), s.chat_text)
        require_equal({len(t.top_logprobs) for t in answer.choices[0].logprobs.content}, {3})


@check("openai", "chat, streamed")
def _(s):
    with openai_client(s.text) as client:
        chunks = list(client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    require_equal(chunks[0].choices[0].delta.role, "assistant")
    require_equal("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), s.chat_text)
    require_equal([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason], ["length"])
    require_equal(chunks[-1].choices, [])
    require_equal(chunks[-1].usage.completion_tokens, LENGTH)


@check("openai", "chat, events of stream()")
def _(s):
    stop = s.chat_text[10:16]  # the client raises an error if the finish reason is "length"
    with openai_client(s.text) as client:
        with client.chat.completions.stream(**CHAT, stop=stop) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            require_equal(text, s.chat_text[:s.chat_text.index(stop)])
            require_equal(stream.get_final_completion().choices[0].message.content, text)


@check("openai", "async chat, also streamed")
def _(s):
    async def run():
        async with openai_client(s.text, True) as client:
            answers = await asyncio.gather(*(client.chat.completions.create(**CHAT) for _ in range(8)))
            require_equal([a.choices[0].message.content for a in answers], [s.chat_text] * 8)

            async def streamed():
                stream = await client.chat.completions.create(**CHAT, stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])
            require_equal(await asyncio.gather(*(streamed() for _ in range(8))), [s.chat_text] * 8)
    asyncio.run(run())


@check("openai", "completions, also streamed")
def _(s):
    request = {"model": "text", "prompt": "The index", "temperature": 0, "max_tokens": LENGTH}
    with openai_client(s.text) as client:
        answer = client.completions.create(**request, logprobs=2)
        require_equal(answer.choices[0].text, s.completion_text)
        require_equal("".join(answer.choices[0].logprobs.tokens), s.completion_text)
        require_equal("".join(c.choices[0].text for c in client.completions.create(**request, stream=True)), s.completion_text)


@check("openai", "errors become exceptions")
def _(s):
    import openai

    def fails(kind, code, call, **more):
        try:
            call(**more)
        except kind as e:
            require_equal(e.code, code)
            return e
        raise AssertionError(f"no {kind.__name__}")
    with openai_client(s.text) as client:
        create = client.chat.completions.create
        require_equal(fails(openai.BadRequestError, None, create, **{**CHAT, "n": 9}).param, "n")
        fails(openai.NotFoundError, "model_not_found", create, **{**CHAT, "model": "other"})
        long = [{"role": "user", "content": "index " * 20_000}]
        fails(openai.BadRequestError, "context_length_exceeded", create, **{**CHAT, "messages": long})
    with openai_client(s.text) as client:
        client = client.with_options(api_key="wrong")
        fails(openai.AuthenticationError, "invalid_api_key", client.chat.completions.create, **CHAT)


@check("openai", "closing a stream cancels the request")
def _(s):
    with openai_client(s.text) as client:
        stream = client.chat.completions.create(**{**CHAT, "max_tokens": 900}, n=8, stream=True)
        next(iter(stream))
        stream.close()
    start = time.monotonic()
    require(s.text.wait_until_idle(10), "the request still runs after 10 s")
    return f"after {1000 * (time.monotonic() - start):.0f} ms"


def item_class():
    from pydantic import BaseModel, Field

    class Method(enum.Enum):
        btree = "btree"
        hash = "hash"

    class Column(BaseModel):
        """A column of an index."""
        name: str = Field(description="The name", max_length=8)
        descending: bool = False

    class Index(BaseModel):
        name: str = Field(pattern="^[a-z_]{3,10}$")
        method: Method
        columns: list[Column] = Field(min_length=1, max_length=2)
        fill: Optional[int] = Field(ge=10, le=100)
        state: Literal["valid", "invalid"]
    return Index


@check("openai", "parse() with a Pydantic class")
def _(s):
    index = item_class()
    with openai_client(s.text) as client:
        for seed in range(10):
            answer = client.chat.completions.parse(**{**CHAT, "temperature": 1.2, "max_tokens": 400}, seed=seed, response_format=index)
            require(isinstance(answer.choices[0].message.parsed, index), f"not parsed: {answer.choices[0]}")
        with client.chat.completions.stream(**{**CHAT, "max_tokens": 400}, response_format=index) as stream:
            require(isinstance(stream.get_final_completion().choices[0].message.parsed, index), "not parsed when streamed")
    return "11 answers"


@check("openai", "tools: call, result, answer")
def _(s):
    messages = list(WEATHER)
    with openai_client(s.tools) as client:
        answer = client.chat.completions.create(model="weather", messages=messages, tools=[CLOCK_TOOL, WEATHER_TOOL])
        choice = answer.choices[0]
        require_equal(choice.finish_reason, "tool_calls")
        require_equal(choice.message.content, "Let me see.")
        call, = choice.message.tool_calls
        require_equal((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"town": "Zürich"}))
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "21.5 degrees"}]
        answer = client.chat.completions.create(model="weather", messages=messages, tools=[CLOCK_TOOL, WEATHER_TOOL])
        require_equal(answer.choices[0].message.content, "It is warm.")
        require_equal(answer.choices[0].finish_reason, "stop")


@check("openai", "tools, streamed")
def _(s):
    with openai_client(s.tools) as client:
        with client.chat.completions.stream(model="weather", messages=WEATHER, tools=[WEATHER_TOOL]) as stream:
            kinds = {event.type for event in stream}
            message = stream.get_final_completion().choices[0].message
        require("tool_calls.function.arguments.done" in kinds, f"events: {kinds}")
        require_equal(json.loads(message.tool_calls[0].function.arguments), {"town": "Zürich"})
        require_equal(message.content.strip(), "Let me see.")


@check("openai", "tools: none, and one call at most")
def _(s):
    with openai_client(s.tools) as client:
        answer = client.chat.completions.create(model="weather", messages=WEATHER, tools=[WEATHER_TOOL], tool_choice="none")
        require_equal(answer.choices[0].message.content, "It is warm.")
        require(not answer.choices[0].message.tool_calls, "a call")
        answer = client.chat.completions.create(model="weather", messages=WEATHER, tools=[WEATHER_TOOL], parallel_tool_calls=False)
        require_equal(len(answer.choices[0].message.tool_calls), 1)


def require_call(message, names):
    """Checks a call of get_weather or get_time."""
    require(message.tool_calls, f"no call: {message}")
    for call in message.tool_calls:
        require(call.function.name in names, f"a call of {call.function.name}")
        arguments = json.loads(call.function.arguments)
        good = arguments.get("town") in TOWNS if call.function.name == "get_weather" else arguments.get("zone") in ("UTC", "CET")
        require(good and len(arguments) == 1, f"arguments {arguments}")


@check("openai", "tools: tool_choice required")
def _(s):
    request = {"model": "weather", "tools": [CLOCK_TOOL, WEATHER_TOOL], "tool_choice": "required", "max_tokens": 200}
    with openai_client(s.tools) as client:
        for temperature in (0, 1.5, 1.5, 1.5):
            answer = client.chat.completions.create(**request, messages=QUESTION, temperature=temperature)
            require_equal(answer.choices[0].finish_reason, "tool_calls")
            require_call(answer.choices[0].message, ("get_weather", "get_time"))
        with client.chat.completions.stream(**request, messages=QUESTION) as stream:
            require_call(stream.get_final_completion().choices[0].message, ("get_weather", "get_time"))


@check("openai", "tools: tool_choice with one function")
def _(s):
    with openai_client(s.tools) as client:
        for temperature in (0, 1.5):
            answer = client.chat.completions.create(
                model="weather", messages=QUESTION, tools=[CLOCK_TOOL, WEATHER_TOOL], temperature=temperature, max_tokens=200,
                tool_choice={"type": "function", "function": {"name": "get_time"}})
            require_call(answer.choices[0].message, ("get_time",))


@check("openai", "tools: parse() with a Pydantic function")
def _(s):
    import openai
    from pydantic import BaseModel

    class GetWeather(BaseModel):
        """The weather in a town, now."""
        town: str
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    with openai_client(s.tools) as client:
        answer = client.chat.completions.parse(model="weather", messages=WEATHER, tools=[tool])
    require_equal(answer.choices[0].message.tool_calls[0].function.parsed_arguments, GetWeather(town="Zürich"))


def require_embeddings(vectors, same):
    """Checks vectors of length 1, of which the first and the one at `same` are those of the same text."""
    require(len({len(v) for v in vectors}) == 1 and len(vectors[0]) > 1, "different lengths")
    for v in vectors:
        require(abs(math.sqrt(sum(x * x for x in v)) - 1) < 1e-3, "a vector whose length is not 1")
    require(max(abs(a - b) for a, b in zip(vectors[0], vectors[same])) < 1e-5, "the same text has another vector")
    require(max(abs(a - b) for a, b in zip(vectors[0], vectors[1])) > 1e-4, "different texts have the same vector")


EMBEDDED = ["What is an index?", "How is the weather?", "What is an index?"]


@check("openai", "embeddings (base64 and numbers)")
def _(s):
    with openai_client(s.text) as client:
        coded = client.embeddings.create(model="text", input=EMBEDDED)  # base64 is this client's default
        plain = client.embeddings.create(model="text", input=EMBEDDED, encoding_format="float")
        single = client.embeddings.create(model="text", input=EMBEDDED[0])
    vectors = [d.embedding for d in coded.data]
    require_equal([d.index for d in coded.data], [0, 1, 2])
    require_embeddings(vectors, 2)
    for a, b in zip(vectors, [d.embedding for d in plain.data]):
        require(max(abs(x - y) for x, y in zip(a, b)) < 1e-5, "base64 and numbers differ")
    require(max(abs(x - y) for x, y in zip(vectors[0], single.data[0].embedding)) < 1e-5, "a single text has another vector")
    require(coded.usage.prompt_tokens > 0, "no usage")
    return f"{len(vectors[0])} numbers"


# litellm

def litellm_options(server, model):
    import litellm
    litellm.telemetry, litellm.suppress_debug_info = False, True
    return litellm, {"model": f"openai/{model}", "api_base": server.url + "/v1", "api_key": server.key or "none", "max_retries": 0}


LITELLM_CHAT = {"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH}


@check("litellm", "chat, also streamed")
def _(s):
    litellm, options = litellm_options(s.text, "text")
    answer = litellm.completion(**options, **LITELLM_CHAT)
    require_equal(answer.choices[0].message.content, s.chat_text)
    require_equal(answer.usage.completion_tokens, LENGTH)
    chunks = list(litellm.completion(**options, **LITELLM_CHAT, stream=True, stream_options={"include_usage": True}))
    require_equal("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), s.chat_text)
    built = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    require_equal((built.choices[0].message.content, built.usage.completion_tokens), (s.chat_text, LENGTH))


@check("litellm", "async chat, also streamed")
def _(s):
    litellm, options = litellm_options(s.text, "text")

    async def run():
        answers = await asyncio.gather(*(litellm.acompletion(**options, **LITELLM_CHAT) for _ in range(4)))
        require_equal([a.choices[0].message.content for a in answers], [s.chat_text] * 4)
        stream = await litellm.acompletion(**options, **LITELLM_CHAT, stream=True)
        require_equal("".join([c.choices[0].delta.content or "" async for c in stream]), s.chat_text)
    asyncio.run(run())


@check("litellm", "text completions")
def _(s):
    litellm, options = litellm_options(s.text, "text")
    options["model"] = "text-completion-openai/text"
    answer = litellm.text_completion(**options, prompt="The index", temperature=0, max_tokens=LENGTH)
    require_equal(answer.choices[0].text, s.completion_text)


@check("litellm", "response_format with a Pydantic class")
def _(s):
    litellm, options = litellm_options(s.text, "text")
    index = item_class()
    answer = litellm.completion(**options, messages=QUESTION, max_tokens=400, seed=1, response_format=index)
    require_equal(answer.choices[0].finish_reason, "stop")
    index.model_validate_json(answer.choices[0].message.content)


@check("litellm", "tools, also streamed")
def _(s):
    litellm, options = litellm_options(s.tools, "weather")
    answer = litellm.completion(**options, messages=WEATHER, tools=[WEATHER_TOOL])
    require_equal(answer.choices[0].finish_reason, "tool_calls")
    message = answer.choices[0].message
    require_call(message, ("get_weather",))
    chunks = list(litellm.completion(**options, messages=WEATHER, tools=[WEATHER_TOOL], stream=True))
    require_call(litellm.stream_chunk_builder(chunks).choices[0].message, ("get_weather",))
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21.5 degrees"}
    answer = litellm.completion(**options, messages=[*WEATHER, message.model_dump(), result], tools=[WEATHER_TOOL])
    require_equal(answer.choices[0].message.content, "It is warm.")


@check("litellm", "tools: tool_choice required")
def _(s):
    litellm, options = litellm_options(s.tools, "weather")
    answer = litellm.completion(**options, messages=QUESTION, tools=[WEATHER_TOOL], tool_choice="required", max_tokens=200)
    require_call(answer.choices[0].message, ("get_weather",))


@check("litellm", "errors become exceptions")
def _(s):
    litellm, options = litellm_options(s.text, "text")
    for kind, request in ((litellm.ContextWindowExceededError, {"messages": [{"role": "user", "content": "index " * 20_000}]}),
                          (litellm.BadRequestError, {"messages": QUESTION, "n": 9})):
        try:
            litellm.completion(**options, **request)
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


@check("litellm", "embeddings")
def _(s):
    litellm, options = litellm_options(s.text, "text")
    answer = litellm.embedding(**options, input=EMBEDDED)
    require_embeddings([d["embedding"] for d in answer.data], 2)


# langchain-openai

def chat_openai(server, model, **options):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(model=model, base_url=server.url + "/v1", api_key=server.key or "none", max_retries=0, timeout=60,
                      **{"temperature": 0, **options})


@check("langchain-openai", "invoke, stream, batch")
def _(s):
    model = chat_openai(s.text, "text", max_tokens=LENGTH)
    answer = model.invoke("What is an index?")
    require_equal((answer.content, answer.usage_metadata["output_tokens"]), (s.chat_text, LENGTH))
    require_equal("".join(chunk.content for chunk in model.stream("What is an index?")), s.chat_text)
    require_equal([a.content for a in model.batch(["What is an index?"] * 4)], [s.chat_text] * 4)


@check("langchain-openai", "async invoke and stream")
def _(s):
    async def run():
        model = chat_openai(s.text, "text", max_tokens=LENGTH)
        require_equal((await model.ainvoke("What is an index?")).content, s.chat_text)
        require_equal("".join([chunk.content async for chunk in model.astream("What is an index?")]), s.chat_text)
    asyncio.run(run())


def weather_function(towns):
    from langchain_core.tools import tool

    @tool
    def get_weather(town: str) -> str:
        """The weather in a town, now."""
        towns.append(town)
        return "21.5 degrees"
    return get_weather


@check("langchain-openai", "agent with a tool, also streamed")
def _(s):
    from langchain_core.messages import HumanMessage
    for streamed in (False, True):
        towns = []
        function = weather_function(towns)
        model = chat_openai(s.tools, "weather").bind_tools([function])
        messages = [HumanMessage("How is the weather?")]
        for _ in range(4):
            if streamed:
                answer = None
                for chunk in model.stream(messages):
                    answer = chunk if answer is None else answer + chunk
            else:
                answer = model.invoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                break
            messages += [function.invoke(call) for call in answer.tool_calls]
        require_equal((towns, messages[-1].content), (["Zürich"], "It is warm."))


@check("langchain-openai", "tools: tool_choice any and one function")
def _(s):
    from pydantic import BaseModel

    class get_weather(BaseModel):
        """The weather in a town, now."""
        town: Literal["Zürich", "Bern"]
    for choice in ("any", "get_weather"):
        model = chat_openai(s.tools, "weather", max_tokens=200).bind_tools([get_weather], tool_choice=choice)
        call, = model.invoke("What is an index?").tool_calls
        require(call["name"] == "get_weather" and call["args"]["town"] in ("Zürich", "Bern"), f"call {call}")


@check("langchain-openai", "structured output by json_schema")
def _(s):
    index = item_class()
    model = chat_openai(s.text, "text", temperature=1, seed=1, max_tokens=400).with_structured_output(index, method="json_schema")
    require(isinstance(model.invoke("What is an index?"), index), "not an Index")


@check("langchain-openai", "structured output by a function")
def _(s):
    from pydantic import BaseModel

    class Weather(BaseModel):
        """The weather."""
        kind: Literal["sun", "rain"]
    model = chat_openai(s.tools, "weather", max_tokens=200).with_structured_output(Weather, method="function_calling")
    require(isinstance(model.invoke("How is the weather?"), Weather), "not a Weather")


@check("langchain-openai", "embeddings")
def _(s):
    from langchain_openai import OpenAIEmbeddings
    # Otherwise it downloads OpenAI's tokenizer, and sends tokens of OpenAI's models.
    model = OpenAIEmbeddings(model="text", base_url=s.text.url + "/v1", api_key=KEY, check_embedding_ctx_length=False)
    require_embeddings(model.embed_documents(EMBEDDED), 2)


# curl

def curl(server, path, *arguments, text=None, key=True):
    """Returns the output of curl and, after a line break, the status."""
    command = ["curl", "-q", "-sS", "--max-time", "60", "-w", "\n%{http_code}", server.url + path, *arguments]
    if server.key and key:
        command += ["-H", f"Authorization: Bearer {server.key}"]
    ran = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    require(ran.returncode == 0, f"curl ended with the status {ran.returncode}: {ran.stderr}")
    body, status = ran.stdout.rsplit("\n", 1)
    return body, int(status)


@check("curl", "requests of docs/serve.md")
def _(s):
    require_equal(curl(s.text, "/health", key=False), ('{"status":"ok"}', 200))
    require_equal(json.loads(curl(s.text, "/v1/models")[0])["data"][0]["id"], "text")
    body = json.dumps({"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH})
    require_equal(json.loads(curl(s.text, "/v1/chat/completions", "-d", body)[0])["choices"][0]["message"]["content"], s.chat_text)
    vector = json.loads(curl(s.text, "/v1/embeddings", "-d", '{"input": "The index"}')[0])["data"][0]["embedding"]
    require(abs(sum(x * x for x in vector) - 1) < 1e-3, "an embedding whose length is not 1")
    require_equal(curl(s.text, "/v1/models", key=False)[1], 401)
    require_equal(curl(s.text, "/v1/chat/completions", "-d", "{")[1], 400)
    require_equal(curl(s.text, "/metrics")[1], 200)


@check("curl", "stream")
def _(s):
    body = json.dumps({"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH, "stream": True})
    for version in ("--http1.1", "--http1.0"):
        out, status = curl(s.text, "/v1/chat/completions", "-N", version, "-d", body)
        require_equal(status, 200)
        events = [e for e in out.split("\n\n") if e.strip() and not e.startswith(":")]
        require_equal(events[-1].strip(), "data: [DONE]")
        chunks = [json.loads(e.removeprefix("data: ")) for e in events[:-1]]
        require_equal("".join(c["choices"][0]["delta"].get("content", "") for c in chunks), s.chat_text)


@check("curl", "chunked and large bodies, HTTP/2 upgrade, HEAD")
def _(s):
    body = json.dumps({"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH})
    out, status = curl(s.text, "/v1/chat/completions", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-", text=body)
    require_equal((status, json.loads(out)["choices"][0]["message"]["content"]), (200, s.chat_text))
    # curl sends "Expect: 100-continue" before bodies of more than 1 MiB.
    large = json.dumps({"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH, "metadata": {"text": "x" * (2 << 20)}})
    out, status = curl(s.text, "/v1/chat/completions", "--data-binary", "@-", text=large)
    require_equal((status, json.loads(out)["choices"][0]["message"]["content"]), (200, s.chat_text))
    require_equal(curl(s.text, "/v1/chat/completions", "--data-binary", "@-", text="x" * (17 << 20))[1], 413)
    require_equal(curl(s.text, "/v1/models", "--http2")[1], 200)
    require_equal(curl(s.text, "/v1/models", "--compressed")[1], 200)
    require_equal(curl(s.text, "/health", "-I")[1], 200)


# A web page

PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>check</title><pre id="out">not finished</pre><img src="/hold">
<script>
const server = SERVER, request = REQUEST, key = KEY;
const headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key};
async function run() {
  const out = {};
  const response = await fetch(server + "/v1/chat/completions",
                               {method: "POST", headers, body: JSON.stringify({...request, stream: true})});
  out.status = response.status;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  out.reads = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    text += value;
    ++out.reads;
  }
  out.done = text.endsWith("data: [DONE]\\n\\n");
  out.text = text.split("\\n\\n").filter(e => e.startsWith("data: {"))
      .map(e => JSON.parse(e.slice(6)).choices[0].delta.content ?? "").join("");
  out.models = (await (await fetch(server + "/v1/models", {headers})).json()).data.length;
  const wrong = await fetch(server + "/v1/chat/completions", {method: "POST", headers, body: "{}"});
  out.wrong = [wrong.status, (await wrong.json()).error.param];
  const keyless = await fetch(server + "/v1/models");
  out.keyless = [keyless.status, (await keyless.json()).error.code];
  const abort = new AbortController();
  const long = await fetch(server + "/v1/chat/completions", {method: "POST", headers, signal: abort.signal,
      body: JSON.stringify({...request, stream: true, max_tokens: 900, n: 8})});
  await long.body.getReader().read();
  abort.abort();
  return out;
}
run().catch(e => ({error: String(e)})).then(out => {
  document.getElementById("out").textContent = JSON.stringify(out);
  return fetch("/finished", {method: "POST"});
});
</script>
"""


class PageServer:
    """Serves PAGE. The image of the page arrives when the page has finished, so that the browser waits for it."""

    def __init__(self):
        self.page = ""
        self.finished = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, kind, body):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                if self.path == "/hold":
                    outer.finished.wait(60)
                    self.answer("image/gif", b"")
                else:
                    self.answer("text/html; charset=utf-8", outer.page.encode() if self.path == "/" else b"")

            def do_POST(self):
                outer.finished.set()
                self.answer("text/plain", b"")

            def log_message(self, *arguments):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *arguments: None  # the browser closes connections when it ends
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def browser():
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


def open_page(pages, s):
    """Opens the page in a browser without a window. Returns the JSON value that it writes."""
    pages.finished.clear()
    pages.page = (PAGE.replace("SERVER", json.dumps(s.text.url), 1).replace("= KEY", "= " + json.dumps(KEY), 1)
                  .replace("REQUEST", json.dumps({"messages": QUESTION, "temperature": 0, "max_tokens": LENGTH}), 1))
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
               "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", f"--user-data-dir={s.folder}/browser", "--dump-dom",
               pages.origin + "/"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="out">(.*?)</pre>', ran.stdout, re.DOTALL)
    require(found, f"the browser ended with the status {ran.returncode}: {ran.stderr[-2000:]}")
    text = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text) if text.startswith("{") else text


@check("browser", "page of an origin of --cors, streamed")
def _(s):
    out = open_page(s.pages, s)
    require_equal({k: out.get(k) for k in ("status", "done", "text", "models", "wrong", "keyless", "error")},
                  {"status": 200, "done": True, "text": s.chat_text, "models": 1, "wrong": [400, "messages"],
                   "keyless": [401, "invalid_api_key"], "error": None})
    require(s.text.wait_until_idle(10), "the aborted request still runs after 10 s")
    return f"{out['reads']} parts"


@check("browser", "page of another origin is rejected")
def _(s):
    before = s.text.metrics()["generated_tokens_total"]
    out = open_page(PageServer(), s)
    require_equal(out, {"error": "TypeError: Failed to fetch"})
    require_equal(s.text.metrics()["generated_tokens_total"], before)


def version_of(client):
    """Returns the version of a client, or None if it is not installed."""
    if client in ("curl", "browser"):
        program = shutil.which("curl") if client == "curl" else browser()
        if not program:
            return None
        words = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return next((word for word in words.stdout.split() if word[0].isdigit()), "unknown")
    try:
        return importlib.metadata.version(client)
    except importlib.metadata.PackageNotFoundError:
        return None


def reason(error):
    """Describes why a check failed. If the server has rejected the request, this is its message."""
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    if status:
        message = body.get("message") if isinstance(body, dict) else None
        return f"the server rejects it: {status} {message or error}"
    return f"{type(error).__name__}: {error}"


def main() -> int:
    clients = list(dict.fromkeys(client for client, _, _ in CHECKS))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/tessera", help="tessera (default: %(default)s)")
    parser.add_argument("--model", type=Path, default=ROOT / "models/pgdocs-2m-q8_0.gguf", help="a GGUF file (default: %(default)s)")
    parser.add_argument("--template", default="chatml", help="its chat template (default: %(default)s)")
    parser.add_argument("--only", metavar="CLIENTS", default=",".join(clients), help="clients to run (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="print the stack traces of failed checks")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(clients):
        parser.error(f"unknown clients: {', '.join(sorted(unknown))}")
    use_only_loopback()
    os.environ.update({"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LANGSMITH_TRACING": "false",
                       "LANGCHAIN_TRACING_V2": "false"})
    versions = {client: version_of(client) for client in chosen}
    rows, failed = [], 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pages = PageServer()
        setup = Setup(options, folder, pages.origin)
        setup.pages = pages
        for client, title, function in CHECKS:
            if client not in chosen:
                continue
            try:
                if versions[client] is None:
                    raise RuntimeError(f"{client} is not installed")
                result = "ok" + (f" ({detail})" if (detail := function(setup)) else "")
            except Exception as error:
                result = "FAILED: " + " ".join(reason(error).split())[:300]
                failed += 1
                if options.verbose:
                    traceback.print_exc()
            rows.append((client, versions[client] or "none", title, result))
        problems = setup.end()
    print_table(("client", "version", "check", "result"), rows)
    for problem in problems:
        print(problem)
    print(f"{len(rows) - failed} of {len(rows)} checks passed")
    return 1 if failed or problems else 0


if __name__ == "__main__":
    sys.exit(main())
