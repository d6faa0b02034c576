// SPDX-License-Identifier: Apache-2.0
// The interface of a subcommand: it declares its options on the command-line parser and provides the function to run.
// Each is in its own file and created by one of the functions below.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tessera::app {

/// Exit codes, the same for every subcommand.
enum ExitCode : int {
  success = 0,
  failed = 1,         ///< the command failed, or a check did; the error is on standard error
  usage = 2,          ///< invalid command line
  interrupted = 130,  ///< Ctrl-C: 128 + SIGINT, as in shells
};

/// For options that name a device: an empty name is a script's mistake, not a request for the default.
inline std::string require_nonempty(const std::string& text) { return text.empty() ? "the name is empty" : ""; }

struct Command {
  CLI::App* options = nullptr;
  std::function<int()> run;  ///< returns the exit code; if it throws, main prints the error and returns `failed`
};

Command devices_command(CLI::App& program);
Command doctor_command(CLI::App& program);
Command prefer_command(CLI::App& program);
Command generate_command(CLI::App& program);
Command chat_command(CLI::App& program);
Command tokenize_command(CLI::App& program);
Command inspect_command(CLI::App& program);
Command estimate_command(CLI::App& program);
Command verify_command(CLI::App& program);
Command kernel_command(CLI::App& program);
Command cache_command(CLI::App& program);
Command train_command(CLI::App& program);
Command bench_command(CLI::App& program);
Command verify_model_command(CLI::App& program);

}  // namespace tessera::app
