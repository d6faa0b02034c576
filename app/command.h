// SPDX-License-Identifier: Apache-2.0
// What main knows of a subcommand: its options, declared on the command line's parser, and the function that runs it.
// One file a subcommand; each is made by one function here.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tessera::app {

/// Exit codes of the program, the same for every subcommand.
enum ExitCode : int {
  success = 0,
  failed = 1,         ///< what was asked could not be done, or a check failed; the error is on standard error
  usage = 2,          ///< the command line is wrong
  interrupted = 130,  ///< Ctrl-C, as shells count it: 128 + SIGINT
};

/// For options that name a device: an empty name is a mistake of a script, not a wish for the default.
inline std::string require_nonempty(const std::string& text) {
  return text.empty() ? "an empty name names nothing" : "";
}

struct Command {
  CLI::App* options = nullptr;
  std::function<int()> run;  ///< gives an exit code; may throw, then main prints the error and gives `failed`
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
