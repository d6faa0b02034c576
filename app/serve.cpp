// SPDX-License-Identifier: Apache-2.0
// `tessera serve`: an HTTP server for a language model, with the interface of OpenAI's API.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "sampling_options.h"
#include "serve/service.h"
#include "terminal.h"
#include "tessera/base/os/child.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/llm/chat_session.h"
#include "tessera/llm/estimate.h"

namespace tessera::app {
namespace {

constexpr const char* key_variable = "TESSERA_API_KEY";

struct ServeArguments : ModelOptions {
  std::string host = "127.0.0.1", key_file, alias, chat_template;
  std::uint16_t port = 8080;
  std::int64_t context = 0, parallel = 16;
  std::size_t queue = 0;  ///< 0: the default, which depends on the model
  std::vector<std::string> origins;
  bool no_key = false, no_sharing = false, quiet = false, has_seed = false;
  std::vector<std::string> of_texts;  ///< the given options that matter only for models that generate text
};

/// Options that exclude each other, which is a usage error.
[[noreturn]] void reject(const std::string& option, const std::string& wrong) {
  throw CLI::ValidationError(option, wrong);
}

/// Returns the keys of --api-key-file or of the environment.
std::vector<std::string> keys_of(const ServeArguments& o) {
  const char* const variable = std::getenv(key_variable);
  if (o.no_key && variable)
    reject("--no-key", fmt::format("{} contains keys; unset the variable, or omit the option", key_variable));
  if (o.no_key) return {};
  if (!o.key_file.empty()) return parse_keys(read_text(o.key_file, "the API keys"));
  return variable ? parse_keys(variable) : std::vector<std::string>{};
}

/// Checks an origin of --cors.
std::string require_origin(const std::string& origin) {
  const std::size_t scheme = origin.find("://");
  const bool has_host = scheme != origin.npos && scheme > 0 && scheme + 3 < origin.size();
  if (origin == "*" || (has_host && origin.find('/', scheme + 3) == origin.npos)) return {};
  return printable_line(origin) +
         " is no origin, so no web page would match it; write scheme, host and port, such as http://localhost:3000, "
         "or *";
}

/// Checks the origins and returns the rules.
AccessRules access_rules(const ServeArguments& o) {
  AccessRules rules{.keys = keys_of(o), .origins = o.origins};
  if (!rules.keys.empty() && std::ranges::find(o.origins, "*") != o.origins.end())
    reject("--cors", "\"*\" would let every web page try keys; name the origins, such as https://example.com");
  return rules;
}

/// Throws the errors of options that do not match the file, which loading the model would find later.
void check_options(const ServeArguments& o, const GgufFile& file) {
  if (is_embedding_model(file)) {
    if (!o.of_texts.empty())
      fail<ArgumentError>({.operation = "serve",
                           .with = {{"file", o.model}, {"options", fmt::format("{}", fmt::join(o.of_texts, " "))}},
                           .wrong = "the model computes embeddings only, and generates no text",
                           .remedy = "Omit these options"});
    return require_context("serve", o.context, read_max_tokens(file));
  }
  if (!o.chat_template.empty()) ChatTemplate::of(file, o.chat_template);
  const LlamaConfig config = read_llama_config(file);
  require_context("serve", o.context, config.context_length);
  for (const auto& [token, bias] : o.merge_sampling({}).logit_bias)
    if (token >= config.vocabulary)
      fail<ArgumentError>({.operation = "serve",
                           .with = {{"--logit-bias", std::to_string(token)}},
                           .wrong = fmt::format("the model has {} tokens", config.vocabulary)});
}

/// The devices of the model, and the reason for the choice.
struct Place {
  std::vector<Device> devices;
  std::string why;
};

/// Loads the model. Called on a thread of its own, so that the server answers meanwhile.
std::unique_ptr<Engine> load_engine(ServeArguments& o, GgufFile file, const Place& place) {
  const auto& [devices, why] = place;
  const DeviceScope scope(devices.front());
  RequestDefaults defaults{.model = o.alias, .sampling = o.merge_sampling(sampling_of(file)), .stop = o.generate.stop};
  if (o.has_seed) defaults.seed = o.generate.sampling.seed;
  SchedulerOptions options{.context = o.context ? o.context : default_context(file, devices, o.generate),
                           .parallel = o.parallel,
                           .batch = o.generate.batch,
                           .cache_dtype = o.generate.cache_dtype,
                           .queue = o.queue,
                           .shares_prefixes = !o.no_sharing};
  LanguageModel model =
      load_with_progress(file, o, devices, {.generate = o.generate, .conversation = options.context}, o.quiet);
  auto engine = std::make_unique<Engine>(file, std::move(model), o.chat_template, defaults, options);
  if (!o.quiet)
    eprint("{}: ready, with a context of {} tokens, on {}\n", printable_line(o.alias), engine->scheduler().context(),
           why);
  return engine;
}

/// Loads a model that computes embeddings only.
std::unique_ptr<EmbeddingEngine> load_embedding_engine(ServeArguments& o, const GgufFile& file, const Place& place) {
  const auto& [devices, why] = place;
  const DeviceScope scope(devices.front());
  auto engine =
      std::make_unique<EmbeddingEngine>(load_embedding_model(file, o, devices, o.quiet),
                                        RequestDefaults{.model = o.alias, .context = o.context}, o.generate.batch);
  if (!o.quiet)
    eprint("{}: ready, computes embeddings of up to {} tokens, on {}\n", printable_line(o.alias),
           engine->defaults().context, why);
  return engine;
}

/// Stops at the first signal, and ends the process at the second, or if the model is not loaded yet.
void handle_signals(HttpServer& server, Service& service, const bool& loaded) {
  server.on_signal([&, signals = 0](int signal) mutable {
    if (!loaded || ++signals > 1) os::leave(128 + signal);
    eprint("tessera: stopping; requests in progress may take 10 s. Press Ctrl-C again to end them now\n");
    service.shut_down();
  });
}

int run_serve(ServeArguments o) {
  o.begin();
  if (o.alias.empty()) o.alias = model_name(o.model);
  // Errors in the options are reported before the server listens.
  ServiceOptions options{.access = access_rules(o)};
  GgufFile file = o.open();
  check_options(o, file);
  const bool embeds = is_embedding_model(file);
  if (o.queue == 0) o.queue = embeds ? 256 : 64;
  // Requests that can start at once pass through the worker, too.
  options.queue = o.queue + (embeds ? 1 : static_cast<std::size_t>(o.parallel));
  auto [devices, why] = where(o, false);
  const Place place{std::move(devices), std::move(why)};
  std::unique_ptr<Service> service;
  HttpServer server(o.host, o.port, {}, [&](const HttpRequest& request, std::unique_ptr<Reply> reply) {
    service->handle(request, std::move(reply));
  });
  options.access.loopback = server.is_loopback();
  if (!server.is_loopback() && options.access.keys.empty() && !o.no_key)
    reject("--host", fmt::format("other machines could use the server without a key; pass --api-key-file FILE or set "
                                 "{}, or permit it with --no-key",
                                 key_variable));
  if (!o.quiet) options.log = [](const std::string& line) { eprint("{}\n", line); };
  service = std::make_unique<Service>(server, options);
  bool loaded = false;
  handle_signals(server, *service, loaded);
  print("listening on {}\n", server.url());
  std::fflush(output());
  if (o.no_key && !server.is_loopback()) eprint("tessera: warning: other machines can use this server without a key\n");

  std::exception_ptr error;
  std::thread loader([&] {
    try {
      const auto set = [&](auto engine) {
        const auto shared = std::make_shared<decltype(engine)>(std::move(engine));  // posted functions must be copyable
        server.post([&, shared] {
          service->set_engine(std::move(*shared));
          loaded = true;
        });
      };
      embeds ? set(load_embedding_engine(o, file, place)) : set(load_engine(o, std::move(file), place));
    } catch (...) {
      error = std::current_exception();
      server.post([&] { server.stop(); });
    }
  });
  server.run();
  loader.join();
  const std::string failure = service->failure();
  service.reset();  // before the server
  if (error) std::rethrow_exception(error);
  if (!failure.empty())
    fail<DeviceError>({.operation = "serve",
                       .wrong = "the device failed twice before it had computed another token or embedding: " + failure,
                       .remedy = "Start the server again; `tessera doctor` examines the device"});
  return success;
}

}  // namespace

Command serve_command(CLI::App& program) {
  auto o = std::make_shared<ServeArguments>();
  CLI::App* sub =
      program.add_subcommand("serve", "Serve a language model over HTTP, with the interface of OpenAI's API");
  o->declare(*sub);
  sub->add_option("--host", o->host, "The address to listen on. Other machines need a key")
      ->capture_default_str()
      ->check(require_nonempty);
  sub->add_option("--port", o->port, "The port; 0: any free port, which is printed")
      ->capture_default_str()
      ->transform(integer_in_range(0, 65535));
  sub->add_option(
         "--ctx", o->context,
         "Maximum tokens of a prompt and its answer (default: the model's context length, but at most 8192, and "
         "less if memory is short)")
      ->transform(integer_in_range(0, most_tokens));
  sub->add_option("--parallel", o->parallel, "Texts that are generated at the same time; more requests wait")
      ->capture_default_str()
      ->transform(integer_in_range(1, 256));
  sub->add_option("--queue", o->queue,
                  "Requests that may wait; more are rejected with the status 429 (default: 64; for embeddings: 256)")
      ->transform(integer_in_range(1, 100'000));
  sub->add_flag("--no-prefix-sharing", o->no_sharing,
                "Read every prompt completely. Otherwise a client can learn from the time of an answer whether another "
                "one has sent the same begin of a prompt");
  auto* file = sub->add_option("--api-key-file", o->key_file,
                               fmt::format("A file with one API key per line (default: {})", key_variable))
                   ->check(require_nonempty);
  sub->add_flag("--no-key", o->no_key, "Require no key, also from other machines")->excludes(file);
  sub->add_option("--cors", o->origins,
                  "Let web pages of this origin use the server, such as https://example.com; can be repeated")
      ->allow_extra_args(false)
      ->check(require_origin);
  sub->add_option("--alias", o->alias, "The name of the model (default: the file's name without .gguf)")
      ->check(require_nonempty);
  sub->add_option("--template", o->chat_template,
                  fmt::format("A variant of the file's chat template, or a built-in one: {}",
                              fmt::join(ChatTemplate::families(), ", ")))
      ->check(require_nonempty);
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress and no log");
  sub->callback([o, sub] {
    o->has_seed = sub->count("--seed") > 0;
    std::vector<std::string> names = {"--parallel", "--no-prefix-sharing", "--template", "--cache-type", "--seed",
                                      "--stop",     "--logit-bias"};
    for (const SamplingOption& option : sampling_options()) names.push_back("--" + option.name);
    for (const std::string& name : names)
      if (sub->count(name) > 0) o->of_texts.push_back(name);
  });
  sub->footer(
      R"(The server listens while the model is loaded; /health then returns 503. Ctrl-C and SIGTERM let requests in progress finish
for 10 seconds; a second signal ends them. One line is logged for each request, without its text. docs/serve.md
describes the endpoints and fields.

Examples:
  tessera serve model.gguf
  tessera serve models/pgdocs-2m-q8_0.gguf --template chatml --port 0
  TESSERA_API_KEY=secret tessera serve model.gguf --host 0.0.0.0
  tessera serve model.gguf --cors http://localhost:3000 --alias local
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}')");
  return {sub, [o] { return run_serve(*o); }};
}

}  // namespace tessera::app
