// SPDX-License-Identifier: Apache-2.0
// `tessera prefer`: shows, sets and clears the preferred device of this project or user.
#include <fmt/format.h>

#include "command.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/device/selection/preferences.h"

namespace tessera::app {
namespace {

struct PreferArguments {
  std::string device;
  bool clear = false, user = false, project = false, show = false;
};

void show(PreferenceScope scope, std::string_view name) {
  const std::string file = preference_file(scope);
  const auto preference = read_preference(scope);
  if (!preference) {
    app::print("{:8} none ({})\n", name, file.empty() ? "no home" : printable_line(file));
    return;
  }
  std::string about = preference->name;
  if (!preference->identity.empty()) about += (about.empty() ? "identity " : ", identity ") + preference->identity;
  app::print("{:8} {}{} ({}:{})\n", name, to_string(preference->device),
             about.empty() ? "" : ", " + printable_line(about), printable_line(preference->file), preference->line);
}

/// Throws if the file is invalid. It must not be overwritten or deleted, because the user may have edited it.
void require_readable(PreferenceScope scope) {
  const auto refuse = [](const Error& e) {
    fail<FormatError>({.wrong = e.what(), .remedy = "Correct or delete the file; an invalid file is not overwritten"});
  };
  try {
    read_preference(scope);
  } catch (const FormatError& e) {
    refuse(e);
  } catch (const DeviceError& e) {
    refuse(e);
  }
}

int run_prefer(const PreferArguments& o) {
  const PreferenceScope scope = o.project ? PreferenceScope::project : PreferenceScope::user;
  if (o.clear || !o.device.empty()) require_readable(scope);
  if (o.clear) {
    set_preferred_device(std::nullopt, scope);
  } else if (!o.device.empty()) {
    set_preferred_device(parse_device(o.device), scope);
  } else {
    if (!o.user) show(PreferenceScope::project, "project");
    if (!o.project) show(PreferenceScope::user, "user");
  }
  if (o.show && (o.clear || !o.device.empty())) show(scope, o.project ? "project" : "user");
  // The current device may differ from the preference: TESSERA_DEVICE takes precedence over both files, and the
  // project's file takes precedence over the user's file.
  app::print("New arrays go to {}\n", why_current_device(Detail::brief));
  return success;
}

}  // namespace

Command prefer_command(CLI::App& program) {
  auto options = std::make_shared<PreferArguments>();
  CLI::App* sub = program.add_subcommand("prefer", "Set the preferred device of this user or project");
  CLI::Option* device = sub->add_option("DEVICE", options->device, "As named by `tessera devices`, such as cuda:1")
                            ->check(require_nonempty);
  CLI::Option* clear = sub->add_flag("--clear", options->clear, "Remove the preference")->excludes(device);
  CLI::Option* user = sub->add_flag("--user", options->user, "For this user, everywhere (the default for changes)");
  sub->add_flag("--project", options->project,
                "For this project: in the tessera.toml of this or the nearest parent folder, else a new one here")
      ->excludes(user);
  sub->add_flag("--show", options->show, "Show the files' preferences (the default without DEVICE and --clear)");
  static_cast<void>(clear);
  sub->footer(
      R"(Priority, highest first: the option --device, or a device named in the program; the environment variable
TESSERA_DEVICE; the project's file tessera.toml, in this or the nearest parent folder; the user's file
~/.config/tessera/config.toml (in XDG_CONFIG_HOME, if that is set); the best GPU; the CPU.
If the preferred device is not found, that is an error, and no other device is used. A preference stores the device's
identity, which takes precedence over its number.

Examples:
  tessera prefer                    show what is preferred, and what is used now
  tessera prefer cuda:1             for this user
  tessera prefer cpu --project      for this project
  tessera prefer --clear --project  remove the project's preference)");
  return {sub, [options] { return run_prefer(*options); }};
}

}  // namespace tessera::app
