// SPDX-License-Identifier: Apache-2.0
// `tessera generate`: continues a prompt with a language model, and reports the device and the speed.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "command.h"
#include "interrupts.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/device/to_string.h"
#include "tessera/llm/chat_session.h"
#include "tessera/llm/grammar/grammar.h"

namespace tessera::app {
namespace {

struct GenerateArguments : ModelOptions {
  std::string prompt, prompt_file, verify_on, system, chat_template, grammar_file, schema_file;
  std::string written_by;  ///< name of the chat template that formatted the prompt
  bool stats = false, json = false, quiet = false, print_tokens = false, strict = false, chat = false, ids = false;
  bool special = false;
};

std::string read_prompt(const GenerateArguments& o) {
  constexpr const char* what = "the prompt";
  if (o.prompt_file.empty()) return o.prompt;
  return o.prompt_file == "-" ? read_standard_input(what) : read_text(o.prompt_file, what, true);
}

std::shared_ptr<const Grammar> read_grammar(const GenerateArguments& o) {
  if (!o.grammar_file.empty())
    return Grammar::from_gbnf(read_text(o.grammar_file, "the grammar", true), o.grammar_file);
  if (!o.schema_file.empty())
    return Grammar::from_json_schema(read_text(o.schema_file, "the JSON schema", true), o.schema_file);
  return nullptr;
}

nlohmann::ordered_json json_of(const PlacementLog& log) {
  using Json = nlohmann::ordered_json;
  Json kernels = Json::array(), copies = Json::array(), made = Json::array();
  for (const auto& k : log.kernels)
    kernels.push_back({{"device", to_string(k.device)}, {"kernel", k.kernel}, {"launches", k.launches}});
  for (const auto& m : log.made)
    made.push_back({{"device", to_string(m.device)},
                    {"compiled", m.compiled},
                    {"loaded", m.loaded},
                    {"damaged", m.damaged},
                    {"refused", m.refused},
                    {"kept", m.kept},
                    {"packed", m.packed},
                    {"unpacked", m.unpacked}});
  for (const auto& c : log.copies)
    copies.push_back({{"device", to_string(c.device)},
                      {"to_device_bytes", c.to_device_bytes},
                      {"to_device_count", c.to_device_count},
                      {"to_host_bytes", c.to_host_bytes},
                      {"to_host_count", c.to_host_count},
                      {"within_bytes", c.within_bytes},
                      {"within_count", c.within_count},
                      {"from_peers_bytes", c.from_peers_bytes},
                      {"from_peers_count", c.from_peers_count}});
  return {{"kernels", kernels}, {"copies", copies}, {"made", made}};
}

nlohmann::ordered_json json_of(const MemoryStats& m) {
  return {{"live_bytes", m.live_bytes},   {"cached_bytes", m.cached_bytes}, {"peak_bytes", m.peak_bytes},
          {"limit_bytes", m.limit_bytes}, {"allocations", m.allocations},   {"reuses", m.reuses}};
}

/// A token may be a part of a character, so its bytes are listed, too.
nlohmann::ordered_json json_of(const TokenProbability& p, const Tokenizer& tokenizer) {
  // Rows of the output matrix may have no token.
  const std::string_view bytes =
      static_cast<std::size_t>(p.id) < tokenizer.size() ? tokenizer.decode(p.id, true) : std::string_view();
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", p.id}, {"text", bytes}, {"bytes", numbers}, {"logprob", p.log_probability}};
}

/// Returns the devices of the model without duplicates.
std::vector<Device> devices_of(const LanguageModel& model) {
  std::vector<Device> devices;
  for (const Device device : model.model().layer_devices())
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  return devices;
}

void print_stats(const LanguageModel& model) {
  eprint("{}\n", to_string(placement_log()));
  for (const Device device : devices_of(model))
    eprint("memory of {}: {}\n", to_string(device), to_string(memory_stats(device)));
}

/// Warns if a prompt that is read as plain text contains the text of a control token.
void warn_of_control_text(const Tokenizer& tokenizer, const std::string& prompt) {
  const std::vector<TokenId> parsed = tokenizer.encode(prompt, {.add_special = false, .parse_special = true});
  const auto at = std::ranges::find(parsed, TokenType::control, [&](TokenId id) { return tokenizer.type(id); });
  if (at == parsed.end()) return;
  logging::warn(fmt::format("{} in the prompt is read as plain text; --special reads it as a control token",
                            printable_line(tokenizer.text(*at))));
}

/// Returns the tokens of the prompt. With --chat, also adds the stop string that ends an answer, and makes the control
/// tokens around thinking visible in the output.
std::vector<TokenId> tokens_of(GenerateArguments& o, const GgufFile& file, const Tokenizer& tokenizer,
                               const std::string& prompt) {
  if (o.ids) return token_numbers(prompt);
  if (!o.chat) {
    if (!o.special) warn_of_control_text(tokenizer, prompt);
    return tokenizer.encode(prompt, {.parse_special = o.special});
  }
  const ChatTemplate chat = ChatTemplate::of(file, o.chat_template);
  Conversation conversation;
  if (!o.system.empty()) conversation.push_back({"system", o.system});
  conversation.push_back({"user", prompt});
  set_chat_ends(o.generate, chat, tokenizer);
  o.written_by = chat.name();
  return chat.prompt(conversation, tokenizer).tokens;
}

void print_json(const GenerateArguments& o, const LanguageModel& model, const GenerateResult& r,
                const std::string& why) {
  nlohmann::ordered_json out = {{"model", o.model},
                                {"device", to_string(model.device())},
                                {"why", why},
                                {"seed", o.generate.sampling.seed},
                                {"prompt_tokens", r.prompt_tokens},
                                {"tokens", r.tokens},
                                {"text", r.text},
                                {"stopped", stop_reason_name(r.reason)},
                                {"stop", r.stop},
                                {"load_seconds", model.load_seconds()},
                                {"prompt_seconds", r.prompt_seconds},
                                {"generate_seconds", r.generate_seconds},
                                {"prompt_tokens_per_second", r.prompt_tokens_per_second()},
                                {"tokens_per_second", r.tokens_per_second()}};
  for (const Device device : devices_of(model)) {
    const auto& layers = model.model().layer_devices();
    out["devices"].push_back({{"device", to_string(device)},
                              {"layers", std::count(layers.begin(), layers.end(), device)},
                              {"weight_bytes", model.model().weight_bytes(device)}});
    if (o.stats) out["devices"].back()["memory"] = json_of(memory_stats(device));
  }
  if (o.stats) out["placement"] = json_of(placement_log());
  for (const auto& of_token : r.log_probabilities) {
    nlohmann::ordered_json entry = json_of(of_token[0], model.tokenizer());
    entry["likeliest"] = nlohmann::ordered_json::array();
    for (std::size_t i = 1; i < of_token.size(); ++i)
      entry["likeliest"].push_back(json_of(of_token[i], model.tokenizer()));
    out["logprobs"].push_back(std::move(entry));
  }
  app::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_summary(const GenerateArguments& o, const LanguageModel& model, const GenerateResult& r,
                   const std::vector<Device>& devices, const std::string& why) {
  eprint("\n");
  print_labelled("loaded", fmt::format("{:.2f} s, {} of weights", model.load_seconds(),
                                       config::format_bytes(model.model().weight_bytes())));
  print_labelled("prompt", fmt::format("{} in {:.3f} s, {}", count_noun(r.prompt_tokens.size(), "token"),
                                       r.prompt_seconds, per_second(r.prompt_tokens_per_second())));
  print_labelled("generated",
                 fmt::format("{} in {:.3f} s{}; stopped: {}", count_noun(r.tokens.size(), "token"), r.generate_seconds,
                             r.tokens_per_second() > 0 ? ", " + per_second(r.tokens_per_second()) : "",
                             stop_reason_name(r.reason)));
  if (!o.written_by.empty()) print_labelled("template", printable_line(o.written_by));
  if (o.generate.sampling.temperature > 0) print_labelled("seed", std::to_string(o.generate.sampling.seed));
  print_labelled("device", why);
  const auto& layers = model.model().layer_devices();
  for (const Device device : devices_of(model))
    if (std::count(layers.begin(), layers.end(), device) != std::ssize(layers))
      print_labelled("", fmt::format("{}: {} of {} layers, {} of weights", to_string(device),
                                     std::count(layers.begin(), layers.end(), device), layers.size(),
                                     config::format_bytes(model.model().weight_bytes(device))));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::count(layers.begin(), layers.end(), devices[i]) != 0) continue;
    const bool passed_over = std::find_first_of(devices.begin() + static_cast<std::ptrdiff_t>(i), devices.end(),
                                                layers.begin(), layers.end()) != devices.end();
    print_labelled(
        "", fmt::format("{}: no layers, {}", to_string(devices[i]),
                        passed_over ? "because none fits in its memory" : "because all fit on the devices before it"));
  }
  if (o.strict) print_labelled("strict", "no other device ran a kernel or received data");
  if (o.stats) eprint("\n"), print_stats(model);
}

int run_generate(GenerateArguments o) {
  catch_interrupts("tessera: interrupted before any text was generated", !o.quiet && os::is_terminal(stderr));
  o.begin();
  const std::string prompt = read_prompt(o);
  warn_unless_utf8(prompt, "the prompt");
  o.generate.grammar = read_grammar(o);
  const auto [devices, why] = where(o, o.json);
  const DeviceScope scope(devices.front());
  std::optional<Device> reference;
  if (!o.verify_on.empty()) reference = device_info(parse_device(o.verify_on)).device;
  if (reference && devices == std::vector{*reference})
    fail<ArgumentError>({.operation = "generate",
                         .with = {{"--verify-on", to_string(*reference)}},
                         .wrong = "the model already runs on this device",
                         .remedy = "Choose another device, such as interp or cpu"});
  const std::unique_ptr<Placement> strict(o.strict ? new Placement(Placement::strict(devices)) : nullptr);
  const GgufFile file = o.open();
  o.generate.sampling = o.merge_sampling(sampling_of(file));
  std::vector<TokenId> tokens;
  const auto make_prompt = [&](const Tokenizer& tokenizer) { return tokens = tokens_of(o, file, tokenizer, prompt); };
  const LanguageModel model =
      load_with_progress(file, o, devices, {.generate = o.generate, .make_prompt = make_prompt}, o.quiet);
  o.print_tokens = o.print_tokens || o.ids;
  const bool writes_text = !o.json && !o.print_tokens;
  // The prompt is printed to standard error, so that standard output contains only the model's text.
  const bool echoed = writes_text && !o.quiet && prompt.size() <= 400;
  if (echoed) eprint("{}", Style(stderr).faint(escape_control_chars(prompt, os::is_terminal(stderr))));
  bool text_begun = false;
  const auto show = [&](std::string_view piece) {
    text_begun = true;
    enable_graceful_stop();
    if (writes_text) {
      const std::string text = escape_control_chars(piece, os::is_terminal(output()));
      std::fwrite(text.data(), 1, text.size(), output());
      if (std::fflush(output()) != 0) return false;  // main reports the error
    }
    return !stop_requested();
  };
  GenerateResult r;
  std::optional<VerifyReport> verified;
  const auto generate = [&] { r = model.generate(tokens, o.generate, show); };
  try {
    if (reference)
      verified = verify_on(*reference, generate);
    else
      generate();
  } catch (...) {  // print the error on a new line, on each stream
    if (echoed) eprint("\n");
    if (writes_text && text_begun && !(echoed && os::is_terminal(output()))) app::print("\n");
    throw;
  }
  if (writes_text) app::print("\n");
  if (o.print_tokens && !o.json) app::print("{}\n", fmt::join(r.tokens, " "));
  if (o.json) print_json(o, model, r, why);
  std::fflush(output());
  if (!o.quiet && !o.json)
    print_summary(o, model, r, devices, why);
  else if (o.stats && !o.json)
    print_stats(model);
  if (verified) eprint("\nkernels rerun on {}:\n{}", to_string(*reference), to_string(*verified));
  if (verified && !verified->agrees()) return failed;
  const bool is_full = r.reason == StopReason::max_tokens || r.reason == StopReason::context_full;
  if (o.generate.grammar && is_full && !o.generate.grammar->matches(r.text))
    fail<ArgumentError>({.operation = "generate",
                         .with = {{"tokens", std::to_string(r.tokens.size())}},
                         .wrong = "the text was cut off before it was complete",
                         .remedy = r.reason == StopReason::max_tokens ? "Increase --tokens" : "Increase --ctx"});
  return stop_requested() ? interrupt_code() : success;
}

}  // namespace

Command generate_command(CLI::App& program) {
  auto o = std::make_shared<GenerateArguments>();
  CLI::App* sub = program.add_subcommand("generate", "Continue a prompt with a language model");
  o->declare(*sub);
  add_prompt_cache_option(*sub, o->generate.prompt_cache);
  auto* prompt = sub->add_option("-p,--prompt", o->prompt, "The prompt");
  auto* prompt_file =
      sub->add_option("--prompt-file", o->prompt_file, "Read the prompt from a file, or from standard input if \"-\"");
  prompt_file->excludes(prompt);
  sub->callback([prompt, prompt_file] {
    if (prompt->count() + prompt_file->count() == 0) throw CLI::RequiredError("--prompt or --prompt-file");
  });
  sub->add_option("-n,--tokens", o->generate.max_tokens, "Maximum number of tokens to generate")
      ->capture_default_str()
      ->transform(integer_in_range(0, most_tokens));
  sub->add_option(
         "--ctx", o->generate.context,
         "Maximum tokens of prompt and answer together (default: the model's maximum). Memory is allocated for "
         "the prompt and --tokens if they need less")
      ->transform(integer_in_range(0, most_tokens));
  auto* chat = sub->add_flag("--chat", o->chat, "Treat the prompt as a user's message, formatted by the chat template");
  sub->add_option("--system", o->system, "With --chat: the system prompt")->needs(chat);
  sub->add_option("--template", o->chat_template,
                  "With --chat: a variant of the file's chat template, or a built-in one: " +
                      fmt::format("{}", fmt::join(ChatTemplate::families(), ", ")))
      ->needs(chat)
      ->check(require_nonempty);
  auto* grammar = sub->add_option("--grammar", o->grammar_file,
                                  "Generate only text that matches the grammar in this "
                                  "file, in GBNF, the format of llama.cpp")
                      ->check(require_nonempty);
  sub->add_option("--json-schema", o->schema_file, "Generate only JSON that is valid against the schema in this file")
      ->check(require_nonempty)
      ->excludes(grammar);
  auto* ids =
      sub->add_flag("--ids", o->ids, "The prompt is a list of token ids, and ids are printed (see `tessera tokenize`)")
          ->excludes(chat);
  sub->add_flag("--special", o->special, "Recognise control tokens such as <|fim_prefix|> in the prompt")
      ->excludes(chat)
      ->excludes(ids);
  sub->add_flag("--stats", o->stats,
                "Also print the kernels that ran on each device, compilations, copies, and memory use");
  auto* strict = sub->add_flag("--strict", o->strict, "Fail if anything runs on or is copied to another device");
  sub->add_option("--verify-on", o->verify_on, "Run each kernel on this device, too, and compare the results. Slow")
      ->check(require_nonempty)
      ->excludes(strict);
  auto* json = sub->add_flag("--json", o->json, "Print one JSON object with text, tokens, times and device");
  sub->add_option(
         "--logprobs", o->generate.log_probabilities,
         "With --json: the log-probability, text and bytes of each token, and of this many most likely alternatives")
      ->needs(json)
      ->transform(integer_in_range(0, 1000));
  sub->add_flag("--print-tokens", o->print_tokens, "Print token ids instead of text");
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress and no summary");
  sub->footer(
      R"(The text is streamed to standard output; progress, prompt and summary go to standard error.
Ctrl-C stops after the current token and keeps the text so far. Before the first token, or if pressed twice, it stops
immediately. The exit code is then 130. Ctrl-C is ignored if it was ignored when the program started (nohup).

Examples:
  tessera generate models/pgdocs-2m-q8_0.gguf -p "The index"
  tessera generate models/pgdocs-2m-q8_0.gguf -p "The index" -n 40 --temperature 0 --device cpu --stats
  tessera generate model.gguf --prompt-file notes.txt --quiet > answer.txt
  tessera generate model.gguf -p "Once" --json | jq .tokens_per_second
  tessera generate model.gguf -p "Why is the sky blue?" --chat --stop "In short"
  tessera generate qwen-coder.gguf --special -p '<|fim_prefix|>int f(<|fim_suffix|>) { return x; }<|fim_middle|>'
  tessera generate model.gguf -p "Describe Zürich" --chat --json-schema town.json
  tessera generate model.gguf -p "Once" --device cuda:0,opencl:1
  tessera generate model.gguf -p "Once" -n 2 --device opencl --verify-on interp)");
  return {sub, [o] { return run_generate(*o); }};
}

}  // namespace tessera::app
