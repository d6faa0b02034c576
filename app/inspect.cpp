// SPDX-License-Identifier: Apache-2.0
// `tessera inspect`: describes a model file, and reports whether it runs here and which features are missing. Without a
// file, lists downloaded model files.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "model_files.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/printable.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/inspect.h"

namespace tessera::app {
namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::string model, devices;
  bool json = false;
};

constexpr std::int64_t usual_context = 4096;
constexpr std::int64_t usual_text = 512;  // of an embedding model

std::string parameters_text(std::uint64_t n) {
  const auto v = static_cast<double>(n);
  if (v >= 1e9) return fmt::format("{:.1f} billion", v / 1e9);
  if (v >= 1e6) return fmt::format("{:.1f} million", v / 1e6);
  return std::to_string(n);
}

std::string shape_text(const EncoderConfig& c) {
  return fmt::format("{}, width {}, hidden {}, {} of {}, vocabulary {}", count_noun(c.layers, "layer"), c.width,
                     c.hidden, count_noun(c.heads, "head"), c.head_size, c.vocabulary);
}

std::string shape_text(const LlamaConfig& c) {
  std::string text = fmt::format("{}, width {}, hidden {}, {} over {} of {}, vocabulary {}",
                                 count_noun(c.layers, "layer"), c.width, c.hidden, count_noun(c.heads, "head"),
                                 count_noun(c.key_heads, "key head"), c.head_size, c.vocabulary);
  if (c.experts > 0)
    text += fmt::format(", {} experts of width {}, {} for each token", c.experts, c.expert_hidden, c.used_experts);
  return text;
}

/// The memory that the model needs, or the error if it could not be estimated.
struct Needs {
  std::optional<ModelMemory> memory;
  std::string error;
};
Needs needs_of(const GgufFile& file, const ModelReport& r, const std::string& names) {
  Needs n;
  if ((!r.config && !r.encoder) || !r.runs()) return n;
  const std::vector<Device> devices = names.empty() ? std::vector{current_device()} : parse_devices(names);
  if (!names.empty())
    for (const Device device : devices) device_info(device);  // throws if it does not exist
  if (r.pooling) try {
      n.memory = estimate_embedding_memory(file, devices, std::min(read_max_tokens(file), usual_text));
      return n;
    } catch (const Error& e) {
      n.error = e.what();
      return n;
    }
  const std::int64_t context = std::min(r.config->context_length, usual_context);
  try {
    // A prompt of one batch is enough, because the work space does not grow with the number of batches.
    n.memory = estimate_memory(file, devices, {.context = context, .prompt = std::min<std::int64_t>(context, 256)});
  } catch (const Error& e) {
    n.error = e.what();
  }
  return n;
}

void row(const char* what, std::string_view text) {
  constexpr std::size_t indent = 16;
  app::print("{:<{}}{}\n", what, indent, wrapped(text, indent, columns(output()), indent));
}

void print(const ModelReport& r, const Needs& needs) {
  const Style style(output());
  app::print("{}: {}{}, {}\n\n", printable_line(r.file), r.name.empty() ? "" : r.name + ", ",
             r.version == 0 ? "folder" : fmt::format("GGUF {}", r.version), config::format_bytes(r.bytes));
  row("architecture", r.architecture.empty() ? "unknown"
                      : r.models.empty()     ? r.architecture
                                             : fmt::format("{} ({})", r.architecture, r.models));
  const std::string shape = r.config ? shape_text(*r.config) : r.encoder ? shape_text(*r.encoder) : "";
  row("size", parameters_text(r.parameters) + " parameters" + (shape.empty() ? "" : ": " + shape));
  if (r.config) row("context", count_noun(r.config->context_length, "token"));
  if (r.encoder) row("context", count_noun(r.encoder->context_length, "token"));
  if (r.pooling) row("embeds", fmt::format("texts, with {} pooling; use `tessera embed`", pooling_name(*r.pooling)));
  if (r.config && r.config->ignored_window > 0)
    row("ignored", fmt::format("the sliding window of {} tokens: in longer texts the model attends to more tokens than "
                               "it was trained for, as in llama.cpp",
                               r.config->ignored_window));
  std::string_view what = "weights";
  for (const ModelReport::Type& t : r.types) {
    // Not printed by `row`, because it would collapse the spaces between the columns.
    app::print("{:<16}{:<8} {:>5} {:<7} {:>12}\n", what, ggml_type_info(t.type)->name, t.tensors,
               t.tensors == 1 ? "tensor" : "tensors", config::format_bytes(t.bytes));
    what = "";
  }
  row("tokenizer", r.tokenizer.empty() ? "none" : fmt::format("{}: {}", r.tokenizer, count_noun(r.tokens, "token")));
  if (!r.pooling) row("chat template", r.has_chat_template ? "yes" : "no");
  app::print("\n");
  if (!r.runs()) {
    row("runs here", style.bad("no"));
  } else if (!needs.memory) {
    row("runs here", style.bad("perhaps") + ": " + needs.error);
  } else {
    const ModelMemory& m = *needs.memory;
    row("runs here", m.fits() ? style.good("yes") : style.bad("not enough free memory"));
    for (const DeviceMemory& d : m.devices)
      if (d.layers > 0 || m.devices.size() == 1)
        row("",
            fmt::format("{} ({}) needs {} for {}, and has {} free", to_string(d.device), device_info(d.device).name,
                        config::format_bytes(d.peak), count_noun(m.context, "token"), config::format_bytes(d.free)));
  }
  what = "missing";
  if (r.missing.empty()) row("missing", "nothing");
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < std::min(r.missing.size(), most); ++i) {
    const MissingPart& m = r.missing[i];
    row(what.data(), fmt::format("{} {}: {}{}", m.kind, m.name, m.why, m.stops ? "" : " (optional)"));
    what = "";
  }
  if (r.missing.size() > most) row("", fmt::format("and {} more (--json lists all)", r.missing.size() - most));
}

Json json_of(const ModelReport& r, const Needs& needs) {
  Json types = Json::array(), missing = Json::array(), devices = Json::array();
  for (const ModelReport::Type& t : r.types)
    types.push_back({{"type", ggml_type_info(t.type)->name},
                     {"tensors", t.tensors},
                     {"parameters", t.elements},
                     {"bytes", t.bytes}});
  for (const MissingPart& m : r.missing)
    missing.push_back({{"kind", m.kind}, {"name", m.name}, {"why", m.why}, {"stops", m.stops}});
  Json out = {{"file", r.file},
              {"name", r.name},
              {"gguf", r.version},
              {"architecture", r.architecture},
              {"parameters", r.parameters},
              {"bytes", r.bytes},
              {"types", types},
              {"tokenizer", r.tokenizer},
              {"tokens", r.tokens},
              {"chat_template", r.has_chat_template}};
  if (r.config) {
    const LlamaConfig& c = *r.config;
    out["context"] = c.context_length;
    out["layers"] = c.layers, out["width"] = c.width, out["hidden"] = c.hidden, out["heads"] = c.heads;
    if (c.ignored_window > 0) out["ignored_window"] = c.ignored_window;
    if (c.experts > 0)
      out["experts"] = c.experts, out["used_experts"] = c.used_experts, out["expert_hidden"] = c.expert_hidden;
    out["key_heads"] = c.key_heads, out["head_size"] = c.head_size, out["vocabulary"] = c.vocabulary;
  }
  if (r.encoder) {
    const EncoderConfig& c = *r.encoder;
    out["context"] = c.context_length;
    out["layers"] = c.layers, out["width"] = c.width, out["hidden"] = c.hidden, out["heads"] = c.heads;
    out["head_size"] = c.head_size, out["vocabulary"] = c.vocabulary;
  }
  if (r.pooling) out["pooling"] = pooling_name(*r.pooling);
  out["runs"] = r.runs();
  if (needs.memory) {
    for (const DeviceMemory& d : needs.memory->devices)
      devices.push_back({{"device", to_string(d.device)},
                         {"layers", d.layers},
                         {"needed_bytes", d.peak},
                         {"free_bytes", d.free},
                         {"fits", d.fits()}});
    out["memory"] = {{"context", needs.memory->context}, {"devices", devices}, {"fits", needs.memory->fits()}};
  }
  out["missing"] = missing;
  return out;
}

/// Returns the architecture and the first reason why the model does not run. If the file cannot be read, the reason is
/// the error.
std::pair<std::string, std::string> brief(const std::string& path) {
  try {
    const ModelReport r = inspect_model(GgufFile::open(path));
    const auto stops = std::ranges::find_if(r.missing, &MissingPart::stops);
    return {r.architecture, stops == r.missing.end() ? "" : stops->kind + " " + stops->name};
  } catch (const Error& e) {
    return {"", e.what()};
  }
}

void list(bool as_json) {
  const ModelCaches caches = cached_models();
  Json models = Json::array();
  const Style style(output());
  for (const CachedModel& m : caches.models) {
    const auto [architecture, stops] = brief(m.path);
    if (as_json)
      models.push_back({{"file", m.path},
                        {"model", m.model},
                        {"bytes", m.bytes},
                        {"parts", m.parts},
                        {"architecture", architecture},
                        {"runs", stops.empty()},
                        {"missing", stops}});
    else
      app::print("{}\n    {}{}{}, {}\n", printable_line(m.path), m.model.empty() ? "" : printable_line(m.model) + ", ",
                 architecture.empty() ? "" : architecture + ", ", config::format_bytes(m.bytes),
                 stops.empty() ? style.good("runs") : style.bad("does not run") + ": " + stops);
  }
  if (as_json) {
    app::print("{}\n", Json{{"folders", caches.folders}, {"models", models}}.dump(2, ' ', false,
                                                                                  Json::error_handler_t::replace));
    return;
  }
  if (caches.models.empty()) app::print("There are no models in the caches of Hugging Face and llama.cpp.\n");
  std::string folders;
  for (const std::string& f : caches.folders) folders += (folders.empty() ? "" : ", ") + printable_line(f);
  app::print("{}Searched {}\n", caches.models.empty() ? "" : "\n",
             folders.empty() ? "nothing: $HOME is not set" : folders);
}

int run_inspect(const InspectArguments& o) {
  if (o.model.empty()) {
    list(o.json);
    return success;
  }
  const GgufFile file = open_model(o.model);
  const ModelReport r = inspect_model(file);
  const Needs needs = needs_of(file, r, o.devices);
  if (o.json)
    app::print("{}\n", json_of(r, needs).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print(r, needs);
  return r.runs() ? success : failed;
}

}  // namespace

Command inspect_command(CLI::App& program) {
  auto o = std::make_shared<InspectArguments>();
  CLI::App* sub = program.add_subcommand("inspect", "Describe a model file, and check whether it runs here");
  sub->add_option(
      "MODEL", o->model,
      "A GGUF file (part 1 if the model is split into several files), or a folder of a model with config.json, "
      "safetensors files and tokenizer.json; default: list the files that Hugging Face's tools and llama.cpp "
      "have downloaded");
  sub->add_option("--device", o->devices, "The device, as named by `tessera devices`")->check(require_nonempty);
  sub->add_flag("--json", o->json, "Print JSON, in bytes");
  sub->footer(
      R"(Reads the file's metadata, not its weights. Exit code 1 if the model does not run.

Examples:
  tessera inspect
  tessera inspect models/pgdocs-2m-q8_0.gguf
  tessera inspect model.gguf --json)");
  return {sub, [o] { return run_inspect(*o); }};
}

}  // namespace tessera::app
