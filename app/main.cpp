// SPDX-License-Identifier: Apache-2.0
// The program `tessera`: declares the subcommands, runs the selected one, and turns errors into messages and exit
// codes.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>

#include "arguments.h"
#include "command.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/os/child.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/dist/mpi_transport.h"

namespace tessera::app {
namespace {

constexpr const char* footer = R"(Examples:
  tessera devices
  tessera doctor
  tessera generate models/pgdocs-2m-q8_0.gguf -p "The index"
  tessera inspect
  tessera chat model.gguf
  tessera serve model.gguf
  tessera embed model.gguf "a cat" "a kitten" --similarity
  tessera quantize model-f16.gguf model-q8_0.gguf q8_0
  tessera perplexity model.gguf -f text.txt
  tessera train digits
  tessera bench
  tessera verify --device cpu
  tessera verify-model model.safetensors --property robust.json
  tessera kernel
  tessera cache
  tessera pack model.gguf --target sm_90 --out model.pack

`tessera COMMAND --help` explains a command, with examples.
Exit codes: 0 success, 1 failure (the error is on standard error), 2 wrong usage, 130 ended by Ctrl-C.
Environment: TESSERA_DEVICE selects the device (default: `tessera prefer`), TESSERA_MEMORY_LIMIT (such as 512M) limits the
memory used per device, TESSERA_LOG=info logs to standard error what is found, selected and compiled.)";

/// Prints "tessera: error: ...". On a terminal, the text is wrapped. It is not wrapped if it contains line breaks, such
/// as a compiler's log, or if memory runs out.
void print_error(std::string_view text) noexcept {
  constexpr std::string_view prefix = "tessera: error:";
  std::fflush(output());
  try {
    const std::string safe = printable_text(text);  // arguments may contain control characters
    const bool broken = os::is_terminal(stderr) && text.find('\n') == std::string_view::npos;
    const std::string whole = fmt::format("{}{} {}\n", error_prefix(), Style(stderr).bad(prefix),
                                          broken ? wrapped(safe, 4, columns(stderr), prefix.size() + 1) : safe);
    std::fwrite(whole.data(), 1, whole.size(), stderr);
  } catch (const std::exception&) {
    std::fwrite(prefix.data(), 1, prefix.size(), stderr);
    std::fputc(' ', stderr);
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fputc('\n', stderr);
  }
}

/// Prints the help of the program or of a command. (CLI::App::help would print the help of the `help` command.)
int help(CLI::App& program, const std::vector<std::string>& topic) {
  CLI::App* command = &program;
  std::string name = program.get_name();
  for (const std::string& word : topic) try {
      command = command->get_subcommand(word);
      name += " " + word;
    } catch (const CLI::OptionNotFound&) {
      print_error(no_command_text(*command, word));
      return usage;
    }
  app::print("{}", program.get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal));
  return success;
}

int run(int argc, char** argv) {
  tessera::logging::check_setting();
  CLI::App program(
      "Finds the devices of this machine that Tessera can compute on, runs language models on them, and trains "
      "networks.",
      "tessera");
  program.footer(footer);
  program.set_version_flag("--version", "tessera " TESSERA_VERSION);
  program.get_formatter()->column_width(34);
  program.require_subcommand(0, 1);
  std::vector<Command> commands = {
      devices_command(program), doctor_command(program),   prefer_command(program),      generate_command(program),
      chat_command(program),    serve_command(program),    embed_command(program),       tokenize_command(program),
      inspect_command(program), estimate_command(program), perplexity_command(program),  quantize_command(program),
      verify_command(program),  kernel_command(program),   cache_command(program),       pack_command(program),
      train_command(program),   bench_command(program),    verify_model_command(program)};
  std::vector<std::string> topic;
  CLI::App* help_options = program.add_subcommand("help", "Explain the program or one of its commands");
  help_options->footer("Examples:\n  tessera help\n  tessera help generate");
  help_options->add_option("COMMAND", topic, "The command to explain");
  commands.push_back({help_options, [&] { return help(program, topic); }});

  try {
    program.parse(argc, argv);
    for (const Command& command : commands)
      if (command.options->parsed()) return command.run();
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      const int code = program.exit(e, text, text);
      app::print("{}", text.str());
      return code;
    }
    print_error(usage_text(program, e));
    return usage;
  }
  eprint("{}", program.help());
  return usage;
}

/// True if a sanitizer, a profiler or a similar tool may be active. Such tools write their results in exit handlers.
bool watched() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#endif
#endif
  // These variables inject libraries: the dynamic linker, CUPTI (Nsight Systems and Compute), ROCm and Level Zero.
  for (const char* name : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "HSA_TOOLS_LIB",
                           "ROCP_TOOL_LIB", "ROCP_TOOL_LIBRARIES", "ZE_ENABLE_TRACING_LAYER"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

/// Set before main ends the program.
constinit std::atomic<bool> ended = false;

/// Exit handler. If a library, such as a driver's thread, calls `exit`, this reports an error and replaces the exit
/// code.
void refuse_exit_of_others() {
  if (ended) return;
  constexpr std::string_view text = "tessera: error: a library, such as a driver, ended the program\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  tessera::os::leave(failed);
}

/// Prints the placement log if TESSERA_STATS=1, as the exit handler of the library does.
void print_stats() {
  try {
    if (config::flag("TESSERA_STATS", false)) eprint("{}", to_string(placement_log()));
  } catch (const std::exception&) {  // an invalid value, which was reported where it was used
  }
}

}  // namespace
}  // namespace tessera::app

int main(int argc, char** argv) {
  using namespace tessera::app;
  int code = failed;
  output();  // redirects standard output before anything else is printed
  std::atexit(refuse_exit_of_others);
  try {
    code = run(argc, argv);
  } catch (const std::bad_alloc&) {
    print_error("the machine is out of memory");
  } catch (const std::exception& e) {
    print_error(e.what());
  }
  if (std::fflush(output()) != 0 || std::ferror(output())) {
    print_error("standard output could not be written");
    code = failed;
  }
  ended = true;
  if (watched()) return code;
  print_stats();
  std::fflush(nullptr);
  tessera::dist::leave_launcher();
  tessera::os::leave(code);  // skips the exit handlers of drivers, which may crash or hang
}
