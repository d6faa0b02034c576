// SPDX-License-Identifier: Apache-2.0
// What words of the command line mean: checks of numbers that say in words what is wrong, and the names that somebody
// may have meant who wrote one that does not exist.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

/// For CLI::Option::transform: a whole number in decimal digits, within these bounds.
CLI::Validator integer_in_range(std::int64_t lowest, std::int64_t highest);
/// For seeds: 0 to 2^64 - 1.
CLI::Validator seed_number();
/// For CLI::Option::transform: a number, no infinity and no NaN, within these bounds. `above`: `lowest` itself is out.
CLI::Validator number(double lowest, double highest, bool above = false);

/// Those of `names` that are nearest to `wanted`, at most `most`, nearest first: beginnings with few letters wrong,
/// then those that have it in them or start alike. Often none.
std::vector<std::string> closest_matches(std::string_view wanted, const std::vector<std::string>& names,
                                         std::size_t most);

/// What is wrong with a command line that the parser refused, for `tessera: error:`. Unknown options and commands are
/// named, with what was perhaps meant.
std::string usage_text(const CLI::App& program, const CLI::ParseError& error);
/// "there is no command ...".
std::string no_command_text(const CLI::App& program, const std::string& name);

}  // namespace tessera::app
