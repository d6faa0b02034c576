#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the output of chat templates with the output of `transformers`.

usage: check_chat_templates.py RENDER_TEMPLATES FOLDER [--errors]

RENDER_TEMPLATES is the program built from tools/render_templates.cpp. FOLDER contains templates as *.jinja files, for example
llama.cpp's models/templates. Each template is rendered with the conversations below. If `transformers` raises an error,
Tessera must report one too; --errors prints both. Requires `transformers` (tools/requirements.txt).
"""
import datetime
import json
import pathlib
import subprocess
import sys

import transformers
from transformers.utils import chat_template_utils

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather in a town, now.",
        "parameters": {"type": "object", "properties": {
            "town": {"type": "string", "description": "Which town, e.g. Zürich"},
            "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["town"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds \"two\" numbers <fast> & well.",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "number", "description": "First"}, "b": {"type": "integer", "description": "Second", "default": 2},
            "more": {"type": "array", "items": {"type": "number"}, "description": "Others"}}, "required": ["a", "b"]}}},
]


def call(name, arguments, number):
    return {"type": "function", "id": f"call{number:05d}", "function": {"name": name, "arguments": arguments}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "You answer in one word."}
WEATHER = [user("How is the weather in Zürich?"),
           assistant("", tool_calls=[call("get_weather", {"town": "Zürich", "unit": "C"}, 1)]),
           {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"degrees\": 21.5}"}]
CONVERSATIONS = [
    dict(messages=[user("Hello")], add_generation_prompt=True),
    dict(messages=[SYSTEM, user("Hello")], add_generation_prompt=True),
    dict(messages=[SYSTEM, user("Hello"), assistant("Hi."), user("Who are you?")], add_generation_prompt=True),
    dict(messages=[user("Hello"), assistant("Hi.")], add_generation_prompt=False),
    dict(messages=[user(""), assistant(""), user("\n  \n")], add_generation_prompt=True),
    dict(messages=[user("日本語と 🦊 <|im_start|>system \"quoted\" 'so' {{ x }} {% y %}"), assistant("Grüße — naïve\n\ncafé  "), user("  spaces  ")],
         add_generation_prompt=True),
    dict(messages=WEATHER, tools=TOOLS, add_generation_prompt=True),
    dict(messages=[SYSTEM] + WEATHER + [assistant("21.5 degrees."), user("And 1 + 2?"),
                   assistant("Let me see.", tool_calls=[call("add", {"a": 1, "b": 2, "more": [3.5, None, True]}, 2), call("get_weather", {"town": "B"}, 3)]),
                   {"role": "tool", "tool_call_id": "call00002", "name": "add", "content": "3"},
                   {"role": "tool", "tool_call_id": "call00003", "name": "get_weather", "content": "fine"}],
         tools=TOOLS, add_generation_prompt=True),
    dict(messages=[user("Think."), assistant("<think>\nHm, 2.\n</think>\n\nTwo."), user("Again.")], add_generation_prompt=True,
         enable_thinking=True),
    dict(messages=[user("Think."), assistant("Two.", reasoning_content="Hm, 2."), user("Again."), assistant("Three.", reasoning_content="1 + 2")],
         add_generation_prompt=False, enable_thinking=False),
    dict(messages=[user([{"type": "text", "text": "One part, "}, {"type": "text", "text": "another."}])], add_generation_prompt=True),
    dict(messages=[user("A"), user("B"), {"role": "system", "content": "late"}, assistant("C"), assistant("D")], tools=[],
         add_generation_prompt=True),
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 4, 12, 34, 56)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    chat_template_utils.datetime = Clock  # its strftime_now uses this
    renderer = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    same = refused = lazy = different = 0
    files = sorted(pathlib.Path(sys.argv[2]).glob("*.jinja"))
    for file in files:
        template = file.read_text(encoding="utf-8")
        compiled = None
        for number, conversation in enumerate(CONVERSATIONS):
            names = {**TOKENS, "tools": None, "documents": None, **conversation}
            try:
                compiled = compiled or chat_template_utils._compile_jinja_template(template)
                expected = {"text": compiled.render(**names)}
            except Exception as error:  # any error raised by Jinja or the template
                expected = {"error": f"{type(error).__name__}: {error}"}
            renderer.stdin.write(json.dumps({"template": template, "names": names}) + "\n")
            renderer.stdin.flush()
            got = json.loads(renderer.stdout.readline())
            if "error" in expected and "error" in got:
                refused += 1
                if "--errors" in sys.argv:
                    print(f"{file.name}, conversation {number}:\n  {expected['error']:.200}\n  {got['error']:.200}")
            elif got == expected:
                same += 1
            elif "is not JSON serializable" in expected.get("error", "") and "text" in got:
                lazy += 1  # Jinja's filters return generators, which cannot be serialised; Tessera's return lists
            else:
                different += 1
                print(f"{file.name}, conversation {number}:\n  transformers: {expected!r:.1500}\n  here:         {got!r:.1500}")
    print(f"{len(files)} templates, {len(CONVERSATIONS)} conversations each, transformers {transformers.__version__}: "
          f"{same} the same, {refused} rejected by both, {lazy} rendered by Tessera only, {different} different")
    sys.exit(1 if different or not same else 0)


main()
