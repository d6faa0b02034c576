// SPDX-License-Identifier: Apache-2.0
// `tessera devices`: every backend, what its driver answered, and why a processor is or is not used.
#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "survey.h"
#include "tessera/base/error.h"

namespace tessera::app {
namespace {

struct DevicesArguments {
  bool json = false, list_only = false, rescan = false;
};

int run_devices(const DevicesArguments& options) {
  if (options.rescan) rescan();
  Table table;
  const Row row = [&](const Survey& so_far) { table.backend(so_far.backends.back(), so_far); };
  const Survey s = survey(options.list_only, options.json ? Row() : row);
  if (options.json) {
    app::print("{}\n", json_of(s).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    app::print("\n");
    if (s.chosen.device) table.paragraph("New arrays go to ", s.chosen.why, 4);
    if (std::ranges::any_of(s.backends, &BackendReport::remembered))
      table.paragraph("",
                      "Rows \"as remembered\" are what the driver answered an earlier program; `tessera devices "
                      "--rescan` asks it again.",
                      4);
  }
  if (s.chosen.device) return success;
  fail<DeviceError>({.wrong = s.chosen.error});
}

}  // namespace

Command devices_command(CLI::App& program) {
  auto options = std::make_shared<DevicesArguments>();
  CLI::App* sub = program.add_subcommand("devices", "List the devices of this machine, and why each is or is not used");
  sub->add_flag("--json", options->json, "Write JSON: memory in bytes; what is not known is null or \"\"");
  sub->add_flag("--list-only", options->list_only,
                "Only ask the drivers: open no device, run nothing, and leave free memory out");
  sub->add_flag("--rescan", options->rescan, "Forget what drivers answered earlier programs, and ask them again");
  sub->footer(
      R"(Opens each device and runs a first small kernel on it, whose result is known. States, from best to worst:
  verified     the first kernel gave the right result
  enumerated   the driver named it; it was not opened, or could not be: then the reason stands there
  quarantined  the first kernel gave a wrong result
  lost         it reported an error from which it does not recover
  hung         the driver did not answer, or did not open the device, in a process of its own in time
  crashed      the driver ended that process
  loaded       the driver's library answers, but there is no usable device
  supported    the driver's library was not found, or could not be loaded
  unsupported  this version of Tessera has no code for it here

Drivers are asked in a process of their own, and so is each device before it is opened here. What those with a device
answered, which devices work, and what crashed, is kept on disk until driver, environment or machine change; what hung is
asked again after ten minutes. `tessera doctor` says more about each, and measures what works.

Examples:
  tessera devices
  tessera devices --json | jq -r .current.why
  TESSERA_DEVICE=opencl tessera devices)");
  return {sub, [options] { return run_devices(*options); }};
}

}  // namespace tessera::app
