# SPDX-License-Identifier: Apache-2.0
"""Tests language models: generation, streaming, chats, and errors of options and callbacks."""

import struct
import tempfile
import threading
import unittest
from pathlib import Path

import tessera as ts

MODEL = Path(__file__).parents[2] / "models" / "pgdocs-2m-q8_0.gguf"


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reports = []
        cls.model = ts.LanguageModel(MODEL, devices="cpu", progress=lambda done, total: reports.append((done, total)))
        cls.reports = reports

    def test_properties_and_tokens(self):
        self.assertEqual(self.model.architecture, "llama")
        self.assertEqual(str(self.model.device), "cpu:0")
        self.assertGreater(len(self.reports), 1)
        tokens = self.model.encode("The index")
        self.assertIn("The index", self.model.decode(tokens))
        self.assertGreater(self.model.vocabulary, max(tokens))
        texts = [self.model.decode([token]) for token in range(self.model.vocabulary)]
        self.assertTrue(any("\ufffd" in text for text in texts))  # some tokens are a part of a character

    def test_generates_streams_and_stops(self):
        pieces = []
        whole = self.model.generate("The index", max_tokens=12, temperature=0, on_text=pieces.append)
        self.assertEqual(str(whole), "".join(pieces))
        self.assertEqual((len(whole.tokens), whole.stop_reason), (12, "max_tokens"))
        self.assertEqual(self.model.generate(self.model.encode("The index"), max_tokens=12, temperature=0).text, whole.text)
        self.assertEqual("".join(self.model.stream("The index", max_tokens=12, temperature=0)), whole.text)
        for piece in self.model.stream("The index", max_tokens=100, temperature=0):
            self.assertTrue(whole.text.startswith(piece))
            break  # closing the iterator stops the generation
        stopped = self.model.generate("The index", max_tokens=12, temperature=0, on_text=lambda piece: False)
        self.assertEqual(stopped.stop_reason, "cancelled")
        ended = self.model.generate("The index", max_tokens=12, temperature=0, stop=whole.text[5:9])
        self.assertEqual((ended.stop_reason, ended.text), ("stop_text", whole.text[:5]))
        schema = {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}
        self.assertRegex(self.model.generate("x", json_schema=schema, max_tokens=40).text, r"^\[.*\]$")

    def test_errors(self):
        with self.assertRaisesRegex(FileNotFoundError, "/nowhere"):
            ts.LanguageModel("/nowhere.gguf")
        with self.assertRaisesRegex(TypeError, "str or a sequence of tokens"):
            self.model.generate(["a", "b"])
        for options in ({"temperature": -1}, {"seed": -1}):
            with self.assertRaisesRegex(ValueError, "must not be negative"):
                self.model.generate("x", **options)
        with self.assertRaisesRegex(ts.ArgumentError, "top_p"):
            self.model.generate("x", top_p=3.0)
        with self.assertRaises(TypeError):
            self.model.generate("x", no_such_option=1)
        with self.assertRaisesRegex(ts.FormatError, "schema"):
            self.model.generate("x", json_schema="{")

        def fails(piece):
            raise ValueError("mine")

        with self.assertRaisesRegex(ValueError, "mine"):
            self.model.generate("The index", on_text=fails)
        with self.assertRaisesRegex(ts.ArgumentError, "top_p"):
            list(self.model.stream("x", top_p=3.0))

    def test_chat(self):
        with self.assertRaisesRegex(ts.FormatError, "template"):
            self.model.chat()
        chat = self.model.chat("Be short.", template="chatml", max_tokens=8, temperature=0)
        answer = chat.ask("What is a table?")
        self.assertEqual([m["role"] for m in chat.messages], ["system", "user", "assistant"])
        self.assertEqual(answer.message["content"], answer.text)
        chat.messages = chat.messages[:2]
        self.assertEqual(chat.answer().text, answer.text)
        self.assertGreater(len("".join(chat.stream("And a view?"))), 0)
        with self.assertRaises(ts.FormatError):
            chat.messages = [{"role": "user"}]

    def test_empty_pieces_are_delivered_while_the_model_thinks(self):
        # A copy of the file with a template whose prompt ends inside of the thinking. Data in the file are aligned.
        template = b"{{ messages[-1].content }}<think>\n"
        key = b"tokenizer.chat_template"
        head = struct.pack("<Q", len(key)) + key + struct.pack("<I", 8)
        template += b" " * (-(len(head) + 8 + len(template)) % 32)
        file = bytearray(MODEL.read_bytes())
        struct.pack_into("<Q", file, 16, struct.unpack_from("<Q", file, 16)[0] + 1)
        file[24:24] = head + struct.pack("<Q", len(template)) + template
        with tempfile.NamedTemporaryFile(suffix=".gguf") as copy:
            copy.write(file)
            copy.flush()
            chat = ts.LanguageModel(copy.name, devices="cpu").chat(max_tokens=8, temperature=0)
            pieces = []
            answer = chat.ask("What is a table?", pieces.append)
            self.assertEqual((answer.text, answer.stop_reason), ("", "max_tokens"))
            self.assertNotEqual(answer.thinking, "")
            self.assertEqual(set(pieces), {""})
            self.assertGreater(len(pieces), 1)
            stopped = chat.ask("And a view?", lambda piece: False)
            self.assertEqual(stopped.stop_reason, "cancelled")
            self.assertLess(len(stopped.tokens), 8)
            for piece in chat.stream("And an index?"):
                self.assertEqual(piece, "")
                break

    def test_two_threads_generate_at_once(self):
        texts = {}

        def work(number):
            texts[number] = self.model.generate("The index", max_tokens=10, temperature=0).text

        threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(texts[0], texts[1])


if __name__ == "__main__":
    unittest.main()
