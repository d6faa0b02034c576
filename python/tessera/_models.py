# SPDX-License-Identifier: Apache-2.0
"""Language models."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

from . import _core
from ._errors import check_not_negative, explains_types, reading


@dataclass
class Generation:
    """A generated text and its statistics."""

    text: str  #: the answer
    tokens: list[int]  #: the generated tokens
    prompt_tokens: int  #: number of tokens of the prompt
    stop_reason: str  #: "end_token", "max_tokens", "context_full", "cancelled" or "stop_text"
    prompt_seconds: float  #: the time for reading the prompt
    generate_seconds: float  #: the time for generating

    def __str__(self) -> str:
        return self.text


@dataclass
class Answer(Generation):
    """An answer of a chat."""

    thinking: str  #: the text between thinking marks
    message: dict[str, Any]  #: the answer, with tool calls, in the format of OpenAI's API


def _options(given: dict[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in given.items() if v is not None}
    schema = out.get("json_schema")
    if schema is not None and not isinstance(schema, str):
        out["json_schema"] = json.dumps(schema)
    if isinstance(out.get("stop"), str):
        out["stop"] = [out["stop"]]
    check_not_negative("generate", temperature=out.get("temperature"), seed=out.get("seed"))
    return out


class LanguageModel:
    """A language model on a device, ready to generate text."""

    @explains_types("LanguageModel")
    def __init__(self, path: str, *, devices: Any = None, progress: Callable[[int, int], Any] | None = None):
        """Loads a GGUF file or a model folder of the Hugging Face hub.

        `devices` is a device or a list of devices; default: the current device. `progress` is called with the bytes
        read so far and in total. Raises MissingFile if the path does not exist, FormatError if the file is invalid, and
        OutOfMemory if the model does not fit.
        """
        if devices is not None and (isinstance(devices, (str, _core.Device))):
            devices = [devices]
        self._model = reading(path, lambda: _core.Model.load(str(path), devices, progress))

    @property
    def architecture(self) -> str:
        """The architecture, such as "llama"."""
        return self._model.architecture

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self._model.context_length

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return self._model.vocabulary

    @property
    def device(self) -> _core.Device:
        """The device of the model, or the first of several."""
        return self._model.device

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, with the begin and end tokens that the model requires."""
        return self._model.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens. Bytes that are not UTF-8, such as a part of a character, become U+FFFD."""
        try:
            return self._model.decode(list(tokens))
        except UnicodeDecodeError as error:
            return error.object.decode("utf-8", "replace")

    @explains_types("generate")
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repeat_penalty: float | None = None,
        seed: int | None = None,
        context: int | None = None,
        stop: str | Sequence[str] | None = None,
        json_schema: dict | str | None = None,
        grammar: str | None = None,
        on_text: Callable[[str], Any] | None = None,
    ) -> Generation:
        """Continues a prompt, which is a text or a list of tokens.

        `on_text` is called with each piece of text; generation stops if it returns False. `json_schema` restricts the
        answer to JSON that matches a schema, `grammar` to texts that match a grammar in GBNF. Defaults are those of
        C++ (temperature 0.8, top_k 40, top_p 0.95, 256 tokens). Other threads run meanwhile; Ctrl-C stops. Raises
        ArgumentError, a ValueError, if the temperature or the seed is negative.
        """
        options = _options({"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
                            "min_p": min_p, "repeat_penalty": repeat_penalty, "seed": seed, "context": context,
                            "stop": stop, "json_schema": json_schema, "grammar": grammar})  # fmt: skip
        prompt = prompt if isinstance(prompt, str) else list(prompt)
        if not isinstance(prompt, str) and not all(hasattr(t, "__index__") for t in prompt):
            raise TypeError("[generate] the prompt must be a str or a sequence of tokens, which are ints. For a "
                            "conversation, use chat()")  # fmt: skip
        return Generation(**self._model.generate(prompt, options, on_text))

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[str]:
        """Yields the pieces of the answer while a thread generates them. `options` are those of generate()."""
        return _pieces(lambda on_text: self.generate(prompt, on_text=on_text, **options))

    def chat(
        self,
        system: str | None = None,
        *,
        template: str = "",
        template_arguments: dict | None = None,
        tools: list | None = None,
        shift: bool = False,
        **options: Any,
    ) -> Chat:
        """Starts a conversation, which is rendered with the chat template of the file.

        `template` names a built-in template, such as "chatml". `tools` are functions in the format of OpenAI's API.
        With `shift`, the oldest messages are dropped when the context is full. `options` are those of generate(); the
        defaults are the sampling options of the file. Raises FormatError if the file has no template and none is named.
        """
        made = self._model.chat(template, json.dumps(template_arguments) if template_arguments else "",
                                json.dumps(tools) if tools else "", shift, _options(options))  # fmt: skip
        chat = Chat(made)
        if system is not None:
            chat.add("system", system)
        return chat


class Chat:
    """A conversation with a model. LanguageModel.chat() creates it."""

    def __init__(self, chat: Any):
        self._chat = chat

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the format of OpenAI's API. Assign a list to replace it."""
        return json.loads(self._chat.to_json())

    @messages.setter
    def messages(self, messages: list[dict[str, Any]]) -> None:
        self._chat.set_json(json.dumps(messages))

    def add(self, role: str, text: str) -> None:
        """Appends a message."""
        self._chat.add(role, text)

    def answer(self, on_text: Callable[[str], Any] | None = None) -> Answer:
        """Generates an answer to the conversation, and appends it.

        `on_text` is called with each piece of the answer; while the model thinks, the pieces are empty. The generation
        stops if it returns False.
        """
        result = self._chat.answer(on_text)
        result["message"] = json.loads(result["message"])[0]
        return Answer(**result)

    def ask(self, text: str, on_text: Callable[[str], Any] | None = None) -> Answer:
        """Appends a message of the user, and returns the answer."""
        self.add("user", text)
        return self.answer(on_text)

    def stream(self, text: str) -> Iterator[str]:
        """Appends a message of the user, and yields the pieces of the answer, which are empty while the model thinks."""
        return _pieces(lambda on_text: self.ask(text, on_text))


def _pieces(generate: Callable[[Callable[[str], Any]], Any]) -> Iterator[str]:
    """Yields the pieces that `generate` passes to its callback on another thread. Closing the iterator stops it."""
    pieces: queue.Queue = queue.Queue()
    stopped = threading.Event()
    device = _core.current_device()

    def run() -> None:
        try:
            with _core._UseDevice(device):
                generate(lambda piece: pieces.put(piece) or not stopped.is_set())
            pieces.put(None)
        except BaseException as error:  # raised in the thread that iterates
            pieces.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while True:
            piece = pieces.get()
            if isinstance(piece, BaseException):
                raise piece
            if piece is None:
                return
            yield piece
    finally:
        stopped.set()
        thread.join()
