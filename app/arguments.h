// SPDX-License-Identifier: Apache-2.0
// Validates numbers in command-line arguments and suggests corrections for mistyped names.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

/// Returns a validator for decimal integers within these bounds. Pass it to CLI::Option::transform.
CLI::Validator integer_in_range(std::int64_t lowest, std::int64_t highest);
/// Returns a validator for seeds, which are integers from 0 to 2^64 - 1.
CLI::Validator seed_number();
/// Returns a validator for finite numbers within these bounds. If `above` is true, `lowest` itself is not allowed.
CLI::Validator number(double lowest, double highest, bool above = false);

/// Returns the message for a command-line error. Unknown options and commands are reported with suggestions.
std::string usage_text(const CLI::App& program, const CLI::ParseError& error);
/// Returns the message for an unknown command.
std::string no_command_text(const CLI::App& program, const std::string& name);

}  // namespace tessera::app
