// SPDX-License-Identifier: Apache-2.0
// `tessera devices`: lists the backends, the devices that their drivers found, and why each device is or is not used.
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
      table.paragraph(
          "", "Rows marked \"cached\" show a driver's cached answer; `tessera devices --rescan` probes it again.", 4);
  }
  if (s.chosen.device) return success;
  fail<DeviceError>({.wrong = s.chosen.error});
}

}  // namespace

Command devices_command(CLI::App& program) {
  auto options = std::make_shared<DevicesArguments>();
  CLI::App* sub = program.add_subcommand("devices", "List the devices of this machine, and why each is or is not used");
  sub->add_flag("--json", options->json, "Print JSON: memory in bytes; unknown values are null or \"\"");
  sub->add_flag("--list-only", options->list_only, "Only list: open no device, run nothing, and omit free memory");
  sub->add_flag("--rescan", options->rescan, "Discard cached answers of drivers, and probe them again");
  sub->footer(
      R"(Opens each device and runs a small kernel on it, whose result is checked. States, from best to worst:
  verified     the first kernel returned the correct result
  enumerated   the driver listed it; it was not opened, or failed to open for the printed reason
  quarantined  the first kernel returned a wrong result
  lost         it reported an unrecoverable error
  hung         the driver did not answer, or did not open the device, in time in a helper process
  crashed      the driver crashed that process
  loaded       the driver's library works, but there is no usable device
  supported    the driver's library was not found, or could not be loaded
  unsupported  this version of Tessera has no code for it here

Drivers are probed in a helper process, and so is each device before it is opened here. Results of drivers with devices,
working devices and crashes are cached on disk until the driver, environment or machine changes; hangs are probed again
after ten minutes. `tessera doctor` shows more details, and measures the devices that work.

Examples:
  tessera devices
  tessera devices --json | jq -r .current.why
  TESSERA_DEVICE=opencl tessera devices)");
  return {sub, [options] { return run_devices(*options); }};
}

}  // namespace tessera::app
