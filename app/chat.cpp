// SPDX-License-Identifier: Apache-2.0
// `tessera chat`: a conversation with a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "chat_loop.h"
#include "command.h"
#include "interrupts.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/llm/estimate.h"

namespace tessera::app {
namespace {

struct ChatArguments : ModelOptions {
  std::string system, prompt, chat_template, arguments, tools, load, when_full = "refuse";
  std::int64_t context = 0;
  bool json = false, quiet = false;
};

int run_chat(ChatArguments o) {
  catch_interrupts("tessera: interrupted before the conversation started", !o.quiet && os::is_terminal(stderr));
  o.begin();
  const auto [devices, why] = where(o, false);
  const DeviceScope scope(devices.front());
  const GgufFile file = o.open();
  const LlamaConfig config = read_llama_config(file);
  ChatTemplate chat_template = ChatTemplate::of(file, o.chat_template, !o.tools.empty());
  ChatOptions options;
  if (!o.tools.empty()) {
    options.prompt.tools = tools_of_json(read_text(o.tools, "the tools"), o.tools);
    chat_template.require_tools();
  }
  options.prompt.arguments = o.arguments;
  options.generate = o.generate;
  options.generate.sampling = o.merge_sampling(sampling_of(file));
  options.generate.cancelled = interrupt_marked;
  options.when_full = o.when_full == "shift" ? WhenFull::shift : WhenFull::refuse;
  options.context = o.context ? o.context : default_context(file, devices, options.generate);
  require_context("chat", options.context, config.context_length);

  Conversation begin;
  if (!o.load.empty()) begin = read_conversation(o.load);
  if (!o.system.empty()) set_system(begin, o.system);
  const LanguageModel model =
      load_with_progress(file, o, devices, {.generate = options.generate, .conversation = options.context}, o.quiet);
  const std::string name = chat_template.name();
  ChatSession session(model, std::move(chat_template), options);
  session.conversation = std::move(begin);
  if (!o.quiet && (!o.json || o.prompt.empty())) {
    print_labelled("device", why);
    print_labelled("context",
                   fmt::format("{} tokens of {} that the model can read{}", session.context(), config.context_length,
                               o.when_full == "shift" ? "; when it is full, the oldest turns are dropped" : ""));
    print_labelled("template", printable_line(name));
    if (options.generate.sampling.temperature > 0)
      print_labelled("seed", std::to_string(options.generate.sampling.seed));
  }
  mark_interrupts();
  return converse(session,
                  {.prompt = o.prompt,
                   .json = o.json,
                   .quiet = o.quiet,
                   .once = !o.prompt.empty(),
                   .about = {{"model", printable_line(o.model)}, {"device", why}, {"template", printable_line(name)}}});
}

}  // namespace

Command chat_command(CLI::App& program) {
  auto o = std::make_shared<ChatArguments>();
  o->generate.max_tokens = most_tokens;
  CLI::App* sub = program.add_subcommand("chat", "Chat with a language model");
  o->declare(*sub);
  add_prompt_cache_option(*sub, o->generate.prompt_cache);
  sub->add_option("-p,--prompt", o->prompt, "Answer this one message and exit")->check([](const std::string& text) {
    return std::string(text.empty() ? "the message is empty" : "");
  });
  sub->add_option("--system", o->system, "The system prompt");
  sub->add_option("--load", o->load, "Continue a conversation saved by /save")->check(require_nonempty);
  sub->add_option("-n,--tokens", o->generate.max_tokens,
                  "Maximum tokens of an answer (default: the rest of the context)")
      ->transform(integer_in_range(1, most_tokens));
  sub->add_option("--ctx", o->context,
                  "Maximum tokens of the conversation (default: the model's context length, but at most 8192, and less "
                  "if memory is short). Memory is allocated as the conversation grows")
      ->transform(integer_in_range(0, most_tokens));
  sub->add_option(
         "--when-full", o->when_full,
         "refuse: the answer ends; shift: the oldest turns are dropped, until half of the context is free, and "
         "the answer continues")
      ->capture_default_str()
      ->check(CLI::IsMember({"refuse", "shift"}));
  sub->add_option("--template", o->chat_template,
                  fmt::format("A variant of the file's chat template, or a built-in one: {}",
                              fmt::join(ChatTemplate::families(), ", ")))
      ->check(require_nonempty);
  sub->add_option("--template-args", o->arguments,
                  R"(A JSON object for the template, such as {"enable_thinking": false})")
      ->check(require_nonempty);
  sub->add_option("--tools", o->tools,
                  "A JSON file with functions that the model may call, in the format of OpenAI's API. Calls are "
                  "printed; /tool returns a result")
      ->check(require_nonempty);
  sub->add_flag("--json", o->json, "Print each answer as one line of JSON");
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress and no messages except errors");
  sub->footer(
      R"(Each line is a message. A line that ends in a backslash continues on the next one; lines between """ and """, and lines
that are pasted, are one message and no command. /help lists the commands, such as /save FILE, /retry and
/set temperature 0.2; Ctrl-C stops an answer, Ctrl-D ends the conversation.
Messages can also come from a file or a pipe; then the first error ends the program. Answers go to standard output,
everything else to standard error. A model's thoughts before an answer are dimmed on a terminal and omitted elsewhere
(--json includes them).

Examples:
  tessera chat model.gguf
  tessera chat model.gguf --system "You answer in one sentence." --temperature 0
  tessera chat model.gguf --prompt "Why is the sky blue?" --quiet
  tessera chat model.gguf --prompt "Why is the sky blue?" --json | jq -r .content
  printf '%s\n' "Hello" "What did I say?" | tessera chat model.gguf
  tessera chat base.gguf --template chatml
  tessera chat model.gguf --tools functions.json)");
  return {sub, [o] { return run_chat(*o); }};
}

}  // namespace tessera::app
