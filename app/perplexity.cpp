// SPDX-License-Identifier: Apache-2.0
// `tessera perplexity`: measures how well a model predicts a text.
#include "tessera/llm/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/base/printable.h"
#include "tessera/llm/estimate.h"

namespace tessera::app {
namespace {

struct PerplexityArguments : ModelOptions {
  std::string text;
  std::int64_t context = 0;
  bool json = false, quiet = false;
};

int run_perplexity(PerplexityArguments o) {
  o.begin();
  const std::string text = o.text == "-" ? read_standard_input("the text") : read_text(o.text, "the text", true);
  warn_unless_utf8(text, "the text");
  const auto [devices, why] = where(o, false);
  const DeviceScope scope(devices.front());
  const GgufFile file = o.open();
  if (o.context == 0) o.context = std::min<std::int64_t>(512, read_llama_config(file).context_length);
  require_context("perplexity", o.context, read_llama_config(file).context_length);
  const LanguageModel model =
      load_with_progress(file, o, devices, {.generate = o.generate, .conversation = o.context}, o.quiet);
  const std::vector<TokenId> tokens = model.tokenizer().encode(text);
  Progress progress(o.quiet);
  const auto windows = static_cast<std::int64_t>(tokens.size()) / o.context;
  const Perplexity p = perplexity(
      model, tokens, {.context = o.context, .batch = o.generate.batch, .cache_dtype = o.generate.cache_dtype},
      [&](const Perplexity& so_far) {
        progress.update(fmt::format("window {} of {}: perplexity {:.4f}", so_far.windows, windows, so_far.value()));
      });
  progress.clear();
  if (o.json)
    app::print("{}\n", nlohmann::ordered_json{{"model", o.model},
                                              {"device", to_string(model.device())},
                                              {"perplexity", p.value()},
                                              {"standard_error", p.error()},
                                              {"nats_per_token", p.loss},
                                              {"context", o.context},
                                              {"windows", p.windows},
                                              {"tokens", p.tokens}}
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    app::print("perplexity {:.4f} +- {:.5f} ({} of {} tokens, {} scored)\n", p.value(), p.error(),
               count_noun(p.windows, "window"), o.context, count_noun(p.tokens, "token"));
  return success;
}

}  // namespace

Command perplexity_command(CLI::App& program) {
  auto o = std::make_shared<PerplexityArguments>();
  CLI::App* sub = program.add_subcommand("perplexity", "Measure how well a model predicts a text");
  o->declare_model(*sub, "MODEL,-m,--model");
  sub->add_option("-f,--file", o->text, "The text, or \"-\" for standard input")->required()->check(require_nonempty);
  sub->add_option("--ctx", o->context, "Length of a window in tokens (default: 512, or the model's maximum)")
      ->transform(integer_in_range(4, most_tokens));
  sub->add_flag("--json", o->json, "Print JSON");
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress");
  sub->footer(
      R"(The text is divided into windows, and the tokens of the second half of each window are scored, as by llama-perplexity of
llama.cpp. Lower is better. Values are comparable only between models with the same vocabulary and the same --ctx.

Examples:
  tessera perplexity models/pgdocs-2m-q8_0.gguf -f docs/llm.md
  tessera perplexity -m model.gguf -f wiki.test.raw --ctx 2048 --device cuda:0)");
  return {sub, [o] { return run_perplexity(*o); }};
}

}  // namespace tessera::app
