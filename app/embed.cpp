// SPDX-License-Identifier: Apache-2.0
// `tessera embed`: computes embeddings of texts.
#include "tessera/llm/embedding_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/array/array.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/printable.h"

namespace tessera::app {
namespace {

struct EmbedArguments : ModelOptions {
  std::vector<std::string> texts;
  std::string file, pooling, prefix, out;
  bool raw = false, truncate = false, json = false, similarity = false, quiet = false;
  std::int64_t batch = 512;
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Returns the texts of the command line, of --file, or of standard input.
std::vector<std::string> texts_of(const EmbedArguments& o) {
  if (!o.texts.empty()) return o.texts;
  const bool from_input = o.file.empty() || o.file == "-";
  std::vector<std::string> texts =
      lines_of(from_input ? read_standard_input("the texts") : read_text(o.file, "the texts", true));
  if (texts.empty())
    fail<ArgumentError>({.operation = "embed",
                         .with = {{"file", from_input ? "-" : o.file}},
                         .wrong = "there is no text",
                         .remedy = "Pass texts as arguments, or one per line in a file or on standard input"});
  return texts;
}

std::optional<Pooling> pooling_of(const std::string& name) {
  for (const Pooling p : {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last})
    if (pooling_name(p) == name) return p;
  return std::nullopt;
}

/// The begin of a text on one line.
std::string shortened(const std::string& text) {
  constexpr std::size_t most = 48;
  std::string line = printable_line(text);
  if (text_width(line) <= most) return line;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return line.substr(0, end) + "...";
}

void print_json(const std::vector<EmbeddingResult>& all, std::size_t width, bool by_token) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const EmbeddingResult& e = all[i];
    app::print(R"({{"index":{},"tokens":{},"truncated":{},"embedding":)", i, e.tokens, e.truncated);
    if (!by_token) app::print("[{}]}}\n", fmt::join(e.values, ","));
    for (std::size_t at = 0; by_token && at < e.values.size(); at += width)
      app::print("{}[{}]", at == 0 ? "[" : ",", fmt::join(std::span(e.values).subspan(at, width), ","));
    if (by_token) app::print("]}}\n");
  }
}

void print_table(const std::vector<EmbeddingResult>& all, const std::vector<std::string>& texts) {
  constexpr std::size_t shown = 4;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<float>& v = all[i].values;
    app::print("{:>4}  {:>5} tokens{}  [", i + 1, all[i].tokens, all[i].truncated ? " (shortened)" : "");
    for (std::size_t n = 0; n < std::min(v.size(), shown); ++n) app::print("{}{:.4f}", n == 0 ? "" : ", ", v[n]);
    app::print("{}]  {}\n", v.size() > shown ? fmt::format(", ... {} numbers", v.size()) : "", shortened(texts[i]));
  }
}

void print_similarity(const std::vector<EmbeddingResult>& all, const std::vector<std::string>& texts, bool json) {
  std::vector<std::vector<double>> cosines;
  for (const EmbeddingResult& a : all) {
    std::vector<double>& row = cosines.emplace_back();
    for (const EmbeddingResult& b : all) row.push_back(cosine_similarity(a.values, b.values));
  }
  if (json) {
    std::string rows;
    for (const auto& row : cosines) rows += fmt::format("{}[{:.6f}]", rows.empty() ? "" : ",", fmt::join(row, ","));
    app::print("{{\"similarity\":[{}]}}\n", rows);
    return;
  }
  app::print("    ");
  for (std::size_t i = 0; i < all.size(); ++i) app::print("{:>8}", i + 1);
  app::print("\n");
  for (std::size_t i = 0; i < all.size(); ++i)
    app::print("{:>4}{:8.4f}  {}\n", i + 1, fmt::join(cosines[i], ""), shortened(texts[i]));
}

/// Writes f32 (texts, width), or with Pooling::none the rows of all tokens.
void save(const std::vector<EmbeddingResult>& all, std::size_t width, const std::string& path) {
  std::vector<float> values;
  for (const EmbeddingResult& e : all) values.insert(values.end(), e.values.begin(), e.values.end());
  const auto rows = static_cast<std::int64_t>(values.size() / width);
  save_npy(Array::from(values, Shape{rows, static_cast<std::int64_t>(width)}), path);
}

int run_embed(EmbedArguments o) {
  o.begin();
  const std::vector<std::string> texts = texts_of(o);
  for (const std::string& text : texts) warn_unless_utf8(text, "the text");
  if (!o.out.empty()) os::require_writable(o.out, {.makes_folders = false});
  const GgufFile file = open_model(o.model, o.weights);
  const auto [devices, why] = where(o, false);
  const DeviceScope scope(devices.front());
  const EmbeddingModel model = load_embedding_model(file, o, devices, o.quiet);
  Progress progress(o.quiet);
  EmbeddingOptions options{.pooling = pooling_of(o.pooling),
                           .normalize = o.raw ? std::optional(false) : std::nullopt,
                           .truncate = o.truncate,
                           .prefix = o.prefix,
                           .batch = o.batch,
                           .on_progress = [&](std::size_t done, std::size_t total) {
                             progress.update(fmt::format("{} of {}", done, count_noun(total, "text")));
                           }};
  const bool by_token = options.pooling.value_or(model.pooling()) == Pooling::none;
  if (by_token && o.similarity)
    fail<ArgumentError>({.operation = "embed",
                         .with = {{"pooling", "none"}},
                         .wrong = "the similarity of texts needs one vector for each text",
                         .remedy = "Pass --pooling mean, cls or last"});
  const std::vector<EmbeddingResult> all = model.embed(texts, options);
  progress.clear();
  const auto width = static_cast<std::size_t>(model.width());
  if (!o.out.empty()) save(all, width, o.out);
  if (o.similarity)
    print_similarity(all, texts, o.json);
  else if (o.json)
    print_json(all, width, by_token);
  else if (o.out.empty())
    print_table(all, texts);
  else
    app::print("wrote {} of {} with {} pooling to {}\n", count_noun(all.size(), "embedding"),
               count_noun(width, "number"), pooling_name(options.pooling.value_or(model.pooling())),
               printable_line(o.out));
  return success;
}

}  // namespace

Command embed_command(CLI::App& program) {
  auto o = std::make_shared<EmbedArguments>();
  CLI::App* sub = program.add_subcommand("embed", "Compute embeddings of texts");
  sub->add_option("MODEL", o->model, model_help)->required();
  auto* texts = sub->add_option("TEXT", o->texts, "The texts (default: one per line of --file or standard input)");
  sub->add_option("-f,--file", o->file, "A file with one text per line, or \"-\" for standard input")
      ->check(require_nonempty)
      ->excludes(texts);
  sub->add_option("--pooling", o->pooling,
                  "How the states of the tokens become the embedding (default: as in the file, else mean)")
      ->check(CLI::IsMember({"none", "mean", "cls", "last"}));
  sub->add_option("--prefix", o->prefix, "A text before each text, such as \"query: \" for E5");
  sub->add_flag("--no-normalize", o->raw, "Do not scale embeddings to the length 1");
  sub->add_flag("--truncate", o->truncate, "Shorten texts that are longer than the model's context length");
  sub->add_flag("--similarity", o->similarity, "Print the cosines between all texts");
  sub->add_flag("--json", o->json, "Print one JSON object per line, with all numbers");
  sub->add_option("--out", o->out, "Write f32 (texts, numbers) to this .npy file of NumPy")
      ->check(require_nonempty)
      ->check([](const std::string& path) {
        return path.ends_with(".npy") ? "" : "the name of the file must end with .npy";
      });
  add_weights_option(*sub, o->weights);
  sub->add_option("--device", o->devices,
                  "The device, as named by `tessera devices` (default: the one that it selects)")
      ->check(require_nonempty);
  sub->add_option("--threads", o->threads, "CPU threads (default: TESSERA_THREADS, else all available cores)")
      ->transform(integer_in_range(1, 4096));
  sub->add_option("--batch", o->batch, "Tokens per step, of several texts")
      ->capture_default_str()
      ->transform(integer_in_range(1, most_tokens));
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress");
  sub->footer(
      R"(Models that were trained with prompts need them: E5 expects "query: " and "passage: ", Nomic Embed "search_query: " and
"search_document: ".

Examples:
  tessera embed bge-small-en-v1.5-f16.gguf "a cat" "a kitten" "the stock market" --similarity
  tessera embed model.gguf -f texts.txt --out embeddings.npy
  tessera embed e5-small.gguf --prefix "query: " "how do indexes work" --json
  tessera embed qwen3-embedding-0.6b-q8_0.gguf -f - --device cuda:0 --json < texts.txt)");
  return {sub, [o] { return run_embed(*o); }};
}

}  // namespace tessera::app
