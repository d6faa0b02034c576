// SPDX-License-Identifier: Apache-2.0
// `tessera prefer`: shows, sets and clears the device that this project or this user prefers.
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

/// A file that is wrong is not changed, and not emptied either: somebody wrote something there.
void require_readable(PreferenceScope scope) {
  const auto refuse = [](const Error& e) {
    fail<FormatError>({.wrong = e.what(), .remedy = "Correct or delete the file: one that is wrong is left as it is"});
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
  // What counts now may be something else: the environment, or the project's file over the user's.
  app::print("New arrays go to {}\n", why_current_device(Detail::brief));
  return success;
}

}  // namespace

Command prefer_command(CLI::App& program) {
  auto options = std::make_shared<PreferArguments>();
  CLI::App* sub = program.add_subcommand("prefer", "Say which device this user or this project prefers");
  CLI::Option* device = sub->add_option("DEVICE", options->device, "As `tessera devices` names it, such as cuda:1")
                            ->check(require_nonempty);
  CLI::Option* clear = sub->add_flag("--clear", options->clear, "Prefer none any more")->excludes(device);
  CLI::Option* user = sub->add_flag("--user", options->user, "For this user, everywhere (the default when writing)");
  sub->add_flag("--project", options->project,
                "For this project: in the tessera.toml found here or above, else a new one here")
      ->excludes(user);
  sub->add_flag("--show", options->show, "Show what the files say (the default without DEVICE and --clear)");
  static_cast<void>(clear);
  sub->footer(
      R"(What counts, most binding first: the option --device or what a program names itself; the environment variable
TESSERA_DEVICE; the project's file tessera.toml, in this folder or the nearest above it; the user's file
~/.config/tessera/config.toml (below XDG_CONFIG_HOME, where that is set); else the first of the best GPUs, else the CPU.
A preference binds: where its device is not there, that is an error. It holds the device's identity, which counts more
than its number.

Examples:
  tessera prefer                    show what is preferred, and what is used now
  tessera prefer cuda:1             for this user
  tessera prefer cpu --project      for this project
  tessera prefer --clear --project  no preference of the project any more)");
  return {sub, [options] { return run_prefer(*options); }};
}

}  // namespace tessera::app
