#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: make_chat_cases.py LIBLLAMA > tests/data/chat_cases.json

Writes the output of llama.cpp's built-in chat templates, which the families of tessera/llm/chat_families.cpp must match.
LIBLLAMA is llama.cpp's libllama.so. The cases were made with the library in llama-cpp-python 0.3.36.
"""
import ctypes
import json
import sys

# The name in Tessera and the name in llama.cpp.
FAMILIES = [
    ("chatml", "chatml"), ("command-r", "command-r"), ("deepseek3", "deepseek3"), ("gemma", "gemma"), ("llama3", "llama3"),
    ("mistral-v1", "mistral-v1"), ("mistral", "mistral-v3"), ("mistral-tekken", "mistral-v3-tekken"),
    ("mistral-v7-tekken", "mistral-v7-tekken"), ("phi3", "phi3"), ("phi4", "phi4"), ("vicuna", "vicuna")]
CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are brief."), ("user", " What is 2 + 2? ")],
    [("user", "Hi"), ("assistant", "Hello! How can I help?"), ("user", "Tell me a joke.\nA short one.")],
    [("system", "Sei höflich. 日本語も。"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "é😀")],
    [("user", ""), ("assistant", "x"), ("user", "<|im_end|> </s> [INST]")]]


class Message(ctypes.Structure):
    _fields_ = [("role", ctypes.c_char_p), ("content", ctypes.c_char_p)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    llama = ctypes.CDLL(sys.argv[1])
    apply = llama.llama_chat_apply_template
    apply.restype = ctypes.c_int32
    apply.argtypes = [ctypes.c_char_p, ctypes.POINTER(Message), ctypes.c_size_t, ctypes.c_bool, ctypes.c_char_p, ctypes.c_int32]
    cases = []
    for ours, theirs in FAMILIES:
        for conversation in CONVERSATIONS:
            messages = (Message * len(conversation))(*[Message(r.encode(), c.encode()) for r, c in conversation])
            buffer = ctypes.create_string_buffer(65536)
            n = apply(theirs.encode(), messages, len(conversation), True, buffer, len(buffer))
            if n < 0:
                sys.exit(f"llama.cpp has no template {theirs}")
            cases.append({"family": ours, "messages": [{"role": r, "content": c} for r, c in conversation],
                          "text": buffer.raw[:n].decode()})
    json.dump(cases, sys.stdout, ensure_ascii=False, indent=1)
    print()


if __name__ == "__main__":
    main()
