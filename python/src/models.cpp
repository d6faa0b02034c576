// SPDX-License-Identifier: Apache-2.0
// Language models.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "core.h"
#include "tessera/base/error.h"
#include "tessera/llm/chat_session.h"
#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/language_model.h"

namespace tessera::python {

namespace {

/// A model with its file, which contains chat templates and sampling options.
struct LoadedModel {
  GgufFile file;
  std::vector<Device> devices;
  LanguageModel model;
};
using ModelPointer = std::shared_ptr<LoadedModel>;

/// A conversation. It keeps its model alive.
struct Chat {
  ModelPointer model;
  ChatSession session;
};

GenerateOptions options_of(const py::dict& given, GenerateOptions out) {
  for (const auto& [key, value] : given) {
    const std::string name = py::str(key);
    if (value.is_none()) continue;
    if (name == "temperature")
      out.sampling.temperature = value.cast<double>();
    else if (name == "top_k")
      out.sampling.top_k = value.cast<std::int64_t>();
    else if (name == "top_p")
      out.sampling.top_p = value.cast<double>();
    else if (name == "min_p")
      out.sampling.min_p = value.cast<double>();
    else if (name == "repeat_penalty")
      out.sampling.repeat_penalty = value.cast<double>();
    else if (name == "seed")
      out.sampling.seed = value.cast<std::uint64_t>();
    else if (name == "max_tokens")
      out.max_tokens = value.cast<std::int64_t>();
    else if (name == "context")
      out.context = value.cast<std::int64_t>();
    else if (name == "stop")
      out.stop = value.cast<std::vector<std::string>>();
    else if (name == "json_schema")
      out.grammar = Grammar::from_json_schema(value.cast<std::string>());
    else if (name == "grammar")
      out.grammar = Grammar::from_gbnf(value.cast<std::string>());
    else
      throw py::type_error("unknown option '" + name + "'");
  }
  // Ctrl-C stops the generation with KeyboardInterrupt.
  out.cancelled = [] {
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return false;
  };
  return out;
}

/// Calls a Python function with a piece of text. The generation stops if it returns False. Pieces of thinking are
/// empty.
bool pass_text(const py::object& on_text, std::string_view piece) {
  if (on_text.is_none()) return true;
  const py::gil_scoped_acquire held;
  const py::object result = on_text(py::str(piece.data(), piece.size()));
  return result.ptr() != Py_False;
}

py::dict result_of(const GenerateResult& r) {
  py::dict out;
  out["text"] = r.text;
  out["tokens"] = r.tokens;
  out["prompt_tokens"] = r.prompt_tokens.size();
  static constexpr const char* reasons[] = {"end_token", "max_tokens", "context_full", "cancelled", "stop_text"};
  out["stop_reason"] = reasons[static_cast<std::size_t>(r.reason)];
  out["prompt_seconds"] = r.prompt_seconds;
  out["generate_seconds"] = r.generate_seconds;
  return out;
}

ModelPointer load(const std::string& path, const py::object& devices, const py::object& progress) {
  LoadOptions how;
  if (!devices.is_none())
    for (const py::handle d : py::iter(devices)) how.devices.push_back(device_of(d));
  if (!progress.is_none())
    how.progress = [&progress](const std::string&, std::uint64_t done, std::uint64_t total) {
      const py::gil_scoped_acquire held;
      progress(done, total);
    };
  return without_gil([&] {
    if (how.devices.empty()) how.devices.push_back(current_device());
    GgufFile file = GgufFile::open(path);
    LanguageModel model = LanguageModel::load(file, how);
    return std::make_shared<LoadedModel>(LoadedModel{std::move(file), how.devices, std::move(model)});
  });
}

py::dict generate(const LoadedModel& m, const py::object& prompt, const py::dict& options, const py::object& on_text) {
  const GenerateOptions how = options_of(options, {});
  const bool is_text = PyUnicode_Check(prompt.ptr());
  const std::vector<TokenId> tokens =
      is_text ? m.model.tokenizer().encode(prompt.cast<std::string>()) : prompt.cast<std::vector<TokenId>>();
  return result_of(without_gil([&] {
    return m.model.generate(tokens, how, [&](std::string_view piece) { return pass_text(on_text, piece); });
  }));
}

std::unique_ptr<Chat> start_chat(const ModelPointer& m, const std::string& chat_template, const std::string& arguments,
                                 const std::string& tools, bool shift, const py::dict& options) {
  ChatOptions how;
  GenerateOptions defaults;
  defaults.sampling = sampling_of(m->file);
  how.generate = options_of(options, defaults);
  how.prompt.arguments = arguments;
  if (!tools.empty()) how.prompt.tools = tools_of_json(tools, "the tools");
  how.when_full = shift ? WhenFull::shift : WhenFull::refuse;
  return without_gil([&] {
    how.context = how.generate.context > 0 ? how.generate.context : default_context(m->file, m->devices, how.generate);
    return std::unique_ptr<Chat>(
        new Chat{m, ChatSession(m->model, ChatTemplate::of(m->file, chat_template, !tools.empty()), how)});
  });
}

py::dict answer(Chat& chat, const py::object& on_text) {
  ChatAnswer a = without_gil([&] {
    return chat.session.answer([&](const ThinkingSplitter::Parts& parts) { return pass_text(on_text, parts.text); });
  });
  a.result.text = a.message.text;
  py::dict out = result_of(a.result);
  out["thinking"] = a.message.thinking;
  out["message"] = to_json(Conversation{a.message});
  return out;
}

}  // namespace

void define_models(py::module_& m) {
  py::class_<LoadedModel, ModelPointer>(m, "Model")
      .def_static("load", load)
      .def("generate", generate)
      .def("chat", start_chat)
      .def("encode", [](const LoadedModel& l, const std::string& text) { return l.model.tokenizer().encode(text); })
      .def("decode", [](const LoadedModel& l,
                        const std::vector<TokenId>& ids) { return py::str(l.model.tokenizer().decode(ids)); })
      .def_property_readonly("architecture", [](const LoadedModel& l) { return l.model.model().config().architecture; })
      .def_property_readonly("context_length",
                             [](const LoadedModel& l) { return l.model.model().config().context_length; })
      .def_property_readonly("vocabulary", [](const LoadedModel& l) { return l.model.tokenizer().size(); })
      .def_property_readonly("device", [](const LoadedModel& l) { return l.model.device(); })
      .def_property_readonly("load_seconds", [](const LoadedModel& l) { return l.model.load_seconds(); });
  py::class_<Chat>(m, "Chat")
      .def("add", [](Chat& c, const std::string& role,
                     const std::string& text) { c.session.conversation.push_back({.role = role, .text = text}); })
      .def("answer", answer)
      .def("to_json", [](const Chat& c) { return to_json(c.session.conversation); })
      .def("set_json", [](Chat& c, const std::string& json) {
        c.session.conversation = conversation_of_json(json, "the conversation");
      });
}

}  // namespace tessera::python
