// SPDX-License-Identifier: Apache-2.0
// Command-line arguments: validation of numbers with readable errors, and suggestions for mistyped names.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

/// For CLI::Option::transform: a decimal integer within these bounds.
CLI::Validator integer_in_range(std::int64_t lowest, std::int64_t highest);
/// For seeds: 0 to 2^64 - 1.
CLI::Validator seed_number();
/// For CLI::Option::transform: a finite number within these bounds. `above`: `lowest` itself is excluded.
CLI::Validator number(double lowest, double highest, bool above = false);

/// At most `most` of the `names` closest to `wanted`, closest first: by edit distance of a prefix, then names that
/// contain it or have the same prefix. May be empty.
std::vector<std::string> closest_matches(std::string_view wanted, const std::vector<std::string>& names,
                                         std::size_t most);

/// The message of a command-line error, for `tessera: error:`. Reports unknown options and commands, with suggestions.
std::string usage_text(const CLI::App& program, const CLI::ParseError& error);
/// "unknown command ...".
std::string no_command_text(const CLI::App& program, const std::string& name);

}  // namespace tessera::app
