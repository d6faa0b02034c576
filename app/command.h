// SPDX-License-Identifier: Apache-2.0
// The interface of a subcommand. Each subcommand is in its own file and is created by one of the functions below, which
// declares the options on the command-line parser.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tessera::app {

/// Exit codes. All subcommands use the same ones.
enum ExitCode : int {
  success = 0,
  failed = 1,         ///< the command or a check failed; the error is on standard error
  usage = 2,          ///< invalid command line
  interrupted = 130,  ///< ended by Ctrl-C: 128 + SIGINT, as in shells
};

/// Validator for options that must not be empty. An empty value is usually an unset variable in a script, so it must
/// not select the default.
inline std::string require_nonempty(const std::string& text) { return text.empty() ? "the name is empty" : ""; }

struct Command {
  CLI::App* options = nullptr;
  /// Returns the exit code. If it throws, main prints the error and returns `failed`, or `usage` for CLI::ParseError.
  std::function<int()> run;
};

Command devices_command(CLI::App& program);
Command doctor_command(CLI::App& program);
Command prefer_command(CLI::App& program);
Command generate_command(CLI::App& program);
Command chat_command(CLI::App& program);
Command serve_command(CLI::App& program);
Command embed_command(CLI::App& program);
Command tokenize_command(CLI::App& program);
Command inspect_command(CLI::App& program);
Command estimate_command(CLI::App& program);
Command perplexity_command(CLI::App& program);
Command quantize_command(CLI::App& program);
Command verify_command(CLI::App& program);
Command kernel_command(CLI::App& program);
Command cache_command(CLI::App& program);
Command pack_command(CLI::App& program);
Command train_command(CLI::App& program);
Command bench_command(CLI::App& program);
Command verify_model_command(CLI::App& program);

}  // namespace tessera::app
