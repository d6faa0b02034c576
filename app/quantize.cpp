// SPDX-License-Identifier: Apache-2.0
// `tessera quantize`: writes a copy of a model with weights in another type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "command.h"
#include "interrupts.h"
#include "model_files.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/printable.h"
#include "tessera/llm/gguf_types.h"
#include "tessera/llm/quantize_model.h"

namespace tessera::app {
namespace {

struct QuantizeArguments {
  std::string from, to, type;
  bool quiet = false;
};

/// Warns if accuracy is lost that the user may not expect to lose, and of matrices that do not get the usual type.
void warn_of_losses(const GgufFile& file, const std::string& mix) {
  const std::vector<GgmlType> types = quantized_types(file, mix);
  const std::uint32_t block = quantization_block(mix);
  bool is_quantised = false;
  std::map<std::pair<GgmlType, std::uint64_t>, std::vector<std::string>> others;  // by type and row length
  for (std::size_t i = 0; i < types.size(); ++i) {
    const GgufTensor& t = file.tensors()[i];
    is_quantised = is_quantised || (types[i] != t.type && ggml_type_info(t.type)->block > 1);
    if (is_quantizable(t) && t.dims[0] % block != 0) others[{types[i], t.dims[0]}].push_back(printable_line(t.name));
  }
  for (const auto& [kind, names] : others) {
    const bool one = names.size() == 1;
    eprint("{}{} {} {}, because {} row length {} is not a multiple of {}\n", names[0],
           one ? "" : fmt::format(" and {} more", names.size() - 1), one ? "becomes" : "become",
           ggml_type_info(kind.first)->name, one ? "its" : "their", kind.second, block);
  }
  if (is_quantised)
    logging::warn(fmt::format("{}: the model is already quantised; quantise its original file to lose less accuracy",
                              file.name()));
}

/// Returns "q8_0: 36 tensors, f32: 11 tensors".
std::string types_text(const GgufFile& file) {
  std::map<std::string_view, std::size_t> counts;
  for (const GgufTensor& t : file.tensors()) ++counts[ggml_type_info(t.type)->name];
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(fmt::format("{}: {}", name, count_noun(count, "tensor")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::uint64_t bytes_of(const GgufFile& file) {
  std::uint64_t bytes = 0;
  for (const GgufTensor& t : file.tensors()) bytes += t.bytes;
  return bytes;
}

/// Refuses to replace a file that is read, and a folder: what only Tessera reads of its tokenizer has no standard keys.
void check_files(const GgufFile& file, const std::string& to) {
  if (file.version() == 0)
    fail<ArgumentError>({.operation = "quantise",
                         .with = {{"file", file.name()}},
                         .wrong = "this is a folder, and not a GGUF file",
                         .remedy = "The other commands quantise its weights while they load it: --weights q8_0"});
  require_other_file("quantise", file, to);
}

/// Converts the name of a type to lower case. Returns an error message if it cannot be written.
std::string require_type(std::string& type) {
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::vector<std::string> all = quantization_mixes();
  if (std::ranges::find(all, type) != all.end()) return {};
  std::vector<std::string> similar;
  for (const std::string& name : all)
    if (name.starts_with(type + "_")) similar.push_back(name);
  if (!type.empty() && !similar.empty())
    return fmt::format("there is no type {}; use {}", type, fmt::join(similar, " or "));
  if (type.starts_with("iq") || type == "mxfp4")
    return fmt::format("{} can be read, but not written; use llama-quantize, or one of {}", type, fmt::join(all, ", "));
  return fmt::format("there is no type {}; the types are {}", quote_text(type), fmt::join(all, ", "));
}

struct Stopped {};

int run_quantize(const QuantizeArguments& o) {
  catch_interrupts("tessera: interrupted before the file was written", !o.quiet && os::is_terminal(stderr));
  const GgufFile file = open_model(o.from);
  check_files(file, o.to);
  if (!o.quiet) warn_of_losses(file, o.type);
  Progress progress(o.quiet);
  enable_graceful_stop();  // the temporary file must be removed
  try {
    quantize_model(file, o.to, o.type, [&](std::size_t index, const GgufTensor& t, GgmlType to) {
      if (stop_requested()) throw Stopped();
      progress.update(fmt::format("tensor {} of {}: {}, {} to {}", index + 1, file.tensors().size(),
                                  printable_line(t.name), ggml_type_info(t.type)->name, ggml_type_info(to)->name));
    });
  } catch (const Stopped&) {
    progress.clear();
    eprint("tessera: interrupted; {} is not written\n", printable_line(o.to));
    return interrupt_code();
  }
  progress.clear();
  if (o.quiet) return success;
  const GgufFile written = GgufFile::open(o.to);
  eprint("{}: {} of weights instead of {} ({})\n", printable_line(o.to), config::format_bytes(bytes_of(written)),
         config::format_bytes(bytes_of(file)), types_text(written));
  return success;
}

}  // namespace

Command quantize_command(CLI::App& program) {
  auto o = std::make_shared<QuantizeArguments>();
  CLI::App* sub = program.add_subcommand("quantize", "Write a copy of a model with weights in another type");
  sub->add_option("IN", o->from, "A GGUF file (part 1 if the model is split into several files)")->required();
  sub->add_option("OUT", o->to, "The file to write")->required()->check(require_nonempty);
  sub->add_option("TYPE", o->type, fmt::format("The type of matrices: {}", fmt::join(quantization_mixes(), ", ")))
      ->required()
      ->transform(CLI::Validator(require_type, "", "type"));
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress and no messages except errors");
  sub->footer(
      R"(q4_k_m is a good choice for most models, and q8_0 for small ones. In the types that contain k, the output and some other
matrices get more bits, as by llama-quantize. In the other types, all matrices get the type, like with its option --pure.
Vectors keep their type. A matrix whose rows are no whole blocks gets a similar type with smaller blocks, or f16. Quantise
the original file (f32, f16 or bf16), not one that is already quantised.

Examples:
  tessera quantize models/pgdocs-2m-f16.gguf small.gguf q4_k_m
  tessera perplexity small.gguf -f docs/llm.md)");
  return {sub, [o] { return run_quantize(*o); }};
}

}  // namespace tessera::app
