// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tessera/base/similar_name.h"

namespace tessera::app {
namespace {

/// Removes a leading plus sign, which std::from_chars does not accept.
std::string_view without_plus(std::string_view text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

template <class T>
std::string bounds(T lowest, T highest) {
  return fmt::format("from {} to {}", lowest, highest);
}

template <class T>
CLI::Validator whole(T lowest, T highest) {
  return {[=](std::string& given) -> std::string {
            const std::string_view text = without_plus(given);
            const std::string_view digits = text.substr(!text.empty() && text[0] == '-');
            if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
              return fmt::format("\"{}\" is not an integer; expected an integer {}", given, bounds(lowest, highest));
            T value{};
            // -0 is accepted for unsigned numbers.
            const std::string_view signless = digits.find_first_not_of('0') == std::string_view::npos ? digits : text;
            const auto [end, error] = std::from_chars(signless.data(), signless.data() + signless.size(), value);
            if (error != std::errc{} || value < lowest || value > highest)
              return fmt::format("{} is out of range: {}", given, bounds(lowest, highest));
            given = std::to_string(value);  // without leading zeros, which CLI11 would interpret as octal
            return "";
          },
          ""};
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names) {
  if (wanted.size() <= 2) return "";  // all single-letter options are equally similar
  const std::vector<std::string> near = closest_matches(wanted, names, 1);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near.front());
}

/// Returns the long option names of a command, with dashes.
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// Returns the full name of a command, such as "tessera train digits".
std::string name_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? "tessera" : name_of(*app.get_parent()) + " " + app.get_name();
}

}  // namespace

CLI::Validator integer_in_range(std::int64_t lowest, std::int64_t highest) { return whole(lowest, highest); }

CLI::Validator seed_number() { return whole(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()); }

CLI::Validator number(double lowest, double highest, bool above) {
  return {[=](std::string& given) -> std::string {
            const std::string range = fmt::format("{} {} to {}", above ? "above" : "from", lowest, highest);
            const std::string_view text = without_plus(given);
            double value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (end != text.data() + text.size() || error == std::errc::invalid_argument || std::isnan(value))
              return fmt::format("\"{}\" is not a number; expected a number {}", given, range);
            if (error != std::errc{}) value = std::strtod(std::string(text).c_str(), nullptr);  // overflow or underflow
            if (value < lowest || value > highest || (above && value == lowest))
              return fmt::format("{} is out of range: {}", given, range);
            return "";
          },
          ""};
}

std::string no_command_text(const CLI::App& program, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands({})) names.push_back(command->get_name());
  const std::vector<std::string> near = closest_matches(name, names, 1);
  return fmt::format("unknown command \"{}\"{}; `{}` lists the commands", name,
                     near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near.front()),
                     program.get_parent() == nullptr ? "tessera help" : name_of(program) + " --help");
}

std::string usage_text(const CLI::App& program, const CLI::ParseError& error) {
  // The program, its selected command, and that command's subcommand.
  std::vector<const CLI::App*> named = {&program};
  while (!named.back()->get_subcommands().empty()) named.push_back(named.back()->get_subcommands().front());
  const CLI::App& command = *named.back();
  const auto see = [&](const CLI::App& app) { return fmt::format("\nSee `{} --help`.", name_of(app)); };
  // The words before the command, or all words if there is no command.
  const std::vector<std::string> before = command.remaining();
  if (!command.get_subcommands({}).empty() && !before.empty() && !before.front().starts_with('-'))
    return no_command_text(command, before.front());
  // Report an unknown option first, because other errors may result from it, such as an unexpected argument.
  for (const CLI::App* app : named)
    for (const std::string& word : app->remaining()) {
      if (word == "--") break;  // the end of the options
      if (word.size() < 2 || word[0] != '-') continue;
      const std::string option = word.substr(0, word.find('='));
      if (command.get_option_no_throw(option) != nullptr)
        return fmt::format("{} must follow the command: `{} ... {}`", option, name_of(command), option) + see(command);
      return fmt::format("`{}` has no option {}{}", name_of(*app), option, did_you_mean(option, option_names(*app))) +
             see(*app);
    }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what() + see(command);
  for (const CLI::App* app : named)
    for (const std::string& word : app->remaining())
      if (word != "--") return fmt::format("`{}` takes no argument \"{}\"", name_of(*app), word) + see(*app);
  return error.what() + see(command);
}

}  // namespace tessera::app
