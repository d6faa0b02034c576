// SPDX-License-Identifier: Apache-2.0
// `tessera devices`: lists the backends, the devices that their drivers found, and why each device is or is not used.
#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "ranks.h"
#include "survey.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/os/processor.h"
#include "tessera/base/printable.h"

namespace tessera::app {
namespace {

struct DevicesArguments {
  bool json = false, list_only = false, rescan = false, all_ranks = false;
};

/// Prints one line for each rank: its machine, and the device that it uses.
int list_ranks(dist::World& world, bool json) {
  using Json = nlohmann::ordered_json;
  const dist::RankInfo& mine = world.ranks()[static_cast<std::size_t>(world.rank())];
  Json row = {{"rank", mine.rank}, {"host", mine.host}, {"process", mine.process}, {"cores", os::usable_cores()}};
  try {
    const Device device = current_device();
    row["device"] = to_string(device), row["name"] = device_info(device).name;
    row["why"] = why_current_device(json ? Detail::full : Detail::brief);
  } catch (const Error& e) {
    row["device"] = nullptr, row["why"] = e.what();
  }
  Json all = Json::array();
  for (int k = 0; k < world.size(); ++k)
    all.push_back(Json::parse(world.broadcast(row.dump(-1, ' ', false, Json::error_handler_t::replace), k)));
  if (json) {
    app::print("{}\n", all.dump(2));
    return success;
  }
  std::size_t width = 7;
  for (const Json& r : all) width = std::max(width, text_width(r["host"].get<std::string>()));
  app::print("rank  {}  cores  device\n", padded("machine", width));
  for (const Json& r : all)
    app::print("{:<4}  {}  {:<5}  {}\n", r["rank"].get<int>(),
               padded(printable_line(r["host"].get<std::string>()), width), r["cores"].get<unsigned>(),
               wrapped(r["why"].get<std::string>(), width + 15, columns(output()), width + 15));
  return success;
}

int run_devices(const DevicesArguments& options) {
  if (options.rescan) rescan();
  if (options.all_ranks) return run_on_ranks([&](dist::World& world) { return list_ranks(world, options.json); });
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
  sub->add_flag("--all-ranks", options->all_ranks,
                "List the processes that mpirun started, their machines, and the device that each uses");
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
  TESSERA_DEVICE=opencl tessera devices
  mpirun -n 4 tessera devices --all-ranks)");
  return {sub, [options] { return run_devices(*options); }};
}

}  // namespace tessera::app
