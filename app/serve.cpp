// SPDX-License-Identifier: Apache-2.0
// `tessera serve`: an HTTP server for a language model, with the interface of OpenAI's API.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "serve/service.h"
#include "terminal.h"
#include "tessera/base/os/child.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/llm/chat_session.h"

namespace tessera::app {
namespace {

constexpr const char* key_variable = "TESSERA_API_KEY";

struct ServeArguments : ModelOptions {
  std::string host = "127.0.0.1", key_file, alias, chat_template;
  std::uint16_t port = 8080;
  std::int64_t context = 0, parallel = 16, queue = 64;
  std::vector<std::string> origins;
  bool no_key = false, no_sharing = false, quiet = false, has_seed = false;
};

/// Returns the keys of --api-key-file or of the environment.
std::vector<std::string> keys_of(const ServeArguments& o) {
  const char* const variable = std::getenv(key_variable);
  if (o.no_key && variable)
    fail<ArgumentError>({.operation = "serve",
                         .wrong = fmt::format("--no-key is given, but {} contains keys", key_variable),
                         .remedy = "Unset the variable, or omit --no-key"});
  if (o.no_key) return {};
  if (!o.key_file.empty()) return parse_keys(read_text(o.key_file, "the API keys"));
  return variable ? parse_keys(variable) : std::vector<std::string>{};
}

AccessRules access_rules(const ServeArguments& o, bool loopback) {
  AccessRules rules{.keys = keys_of(o), .origins = o.origins, .loopback = loopback};
  if (!loopback && rules.keys.empty() && !o.no_key)
    fail<ArgumentError>(
        {.operation = "serve",
         .with = {{"host", o.host}},
         .wrong = "other machines could use the server without a key",
         .remedy = fmt::format("Pass --api-key-file FILE or set {}, or permit it with --no-key", key_variable)});
  for (const std::string& origin : o.origins) {
    const std::size_t scheme = origin.find("://");
    const bool has_host = scheme != origin.npos && scheme > 0 && scheme + 3 < origin.size();
    if (origin != "*" && (!has_host || origin.find('/', scheme + 3) != origin.npos))
      fail<ArgumentError>({.operation = "serve",
                           .with = {{"--cors", printable_line(origin)}},
                           .wrong = "this is no origin, so no web page would match it",
                           .remedy = "Write scheme, host and port, such as http://localhost:3000, or *"});
    if (origin == "*" && !rules.keys.empty())
      fail<ArgumentError>({.operation = "serve",
                           .wrong = "--cors \"*\" would let every web page try keys",
                           .remedy = "Name the origins, such as https://example.com"});
  }
  return rules;
}

/// Loads the model. Called on a thread of its own, so that the server answers meanwhile.
std::unique_ptr<Engine> load_engine(ServeArguments& o, GgufFile file) {
  const auto [devices, why] = where(o, false);
  const DeviceScope scope(devices.front());
  RequestDefaults defaults{.model = o.alias, .sampling = o.merge_sampling(sampling_of(file)), .stop = o.generate.stop};
  if (o.has_seed) defaults.seed = o.generate.sampling.seed;
  SchedulerOptions options{.context = o.context ? o.context : default_context(file, devices, o.generate),
                           .parallel = o.parallel,
                           .batch = o.generate.batch,
                           .cache_dtype = o.generate.cache_dtype,
                           .queue = static_cast<std::size_t>(o.queue),
                           .shares_prefixes = !o.no_sharing};
  LanguageModel model =
      load_with_progress(file, o, devices, {.generate = o.generate, .conversation = options.context}, o.quiet);
  auto engine = std::make_unique<Engine>(std::move(file), std::move(model), o.chat_template, defaults, options);
  if (!o.quiet)
    eprint("{}: ready, with a context of {} tokens, on {}\n", printable_line(o.alias), engine->scheduler().context(),
           why);
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
  GgufFile file = open_model(o.model, o.weights);
  if (!o.chat_template.empty()) ChatTemplate::of(file, o.chat_template);
  std::unique_ptr<Service> service;
  HttpServer server(o.host, o.port, {}, [&](const HttpRequest& request, std::unique_ptr<Reply> reply) {
    service->handle(request, std::move(reply));
  });
  ServiceOptions options{.access = access_rules(o, server.is_loopback())};
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
      const auto engine = std::make_shared<std::unique_ptr<Engine>>(load_engine(o, std::move(file)));
      server.post([&, engine] {
        service->set_engine(std::move(*engine));
        loaded = true;
      });
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
                       .wrong = "the device failed twice before it had computed another token: " + failure,
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
  sub->add_option("--queue", o->queue, "Requests that may wait; more are rejected with the status 429")
      ->capture_default_str()
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
      ->check(require_nonempty);
  sub->add_option("--alias", o->alias, "The name of the model (default: the file's name without .gguf)")
      ->check(require_nonempty);
  sub->add_option("--template", o->chat_template,
                  fmt::format("A variant of the file's chat template, or a built-in one: {}",
                              fmt::join(ChatTemplate::families(), ", ")))
      ->check(require_nonempty);
  sub->add_flag("-q,--quiet", o->quiet, "Print no progress and no log");
  sub->callback([o, sub] { o->has_seed = sub->count("--seed") > 0; });
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
