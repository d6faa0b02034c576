// SPDX-License-Identifier: Apache-2.0
// `tessera devices`: every backend, what its driver answered, and why a processor is or is not used.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "command.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/device/device.h"

namespace tessera::app {
namespace {

struct Options {
  bool json = false, list_only = false;
};

std::string_view title(Backend backend) {
  static constexpr std::string_view titles[] = {"CPU", "CUDA", "ROCm", "oneAPI", "Metal", "OpenCL", "Interpreter"};
  return titles[static_cast<std::size_t>(backend)];
}

bool usable(DeviceState state) { return state == DeviceState::enumerated || state == DeviceState::verified; }

/// What is found out by opening a device.
struct Opened {
  std::optional<std::uint64_t> free;
  std::string error;
};

struct Chosen {
  std::optional<Device> device;
  std::string why, error;
};

struct Survey {
  std::vector<BackendReport> backends;
  std::map<Device, Opened> opened;
  Chosen chosen;
};

Survey survey(bool list_only) {
  Survey s;
  if (!list_only) {
    Progress progress(false);
    const std::vector<BackendReport> first = discover();
    for (const BackendReport& row : first) {
      for (const DeviceInfo& info : row.devices) {
        progress.update(fmt::format("running a first kernel on {} ({})", to_string(info.device), info.name));
        Opened& o = s.opened[info.device];
        try {
          o.free = free_memory(info.device);  // opens it, which runs the first kernel
        } catch (const Error& e) {
          o.error = e.what();
        }
      }
    }
  }
  s.backends = discover();
  try {
    s.chosen.device = current_device();
    s.chosen.why = why_current_device();
  } catch (const Error& e) {
    s.chosen.error = e.what();
  }
  return s;
}

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1u << 30));
}

std::string joined(const std::vector<std::string>& parts, std::string_view with) {
  return fmt::format("{}", fmt::join(parts, with));
}

std::string capability_text(const Capabilities& can) {
  std::vector<std::string> does;
  if (can.f64) does.emplace_back("f64");
  if (can.f16) does.emplace_back("f16");
  if (can.bf16) does.emplace_back("bf16");
  if (can.int8_dot) does.emplace_back("int8 dot");
  if (can.atomic_f32) does.emplace_back("f32 atomics");
  if (can.atomic_i64) does.emplace_back("64-bit atomics");
  std::vector<std::string> widths;
  for (std::uint32_t w : can.subgroup_widths) widths.push_back(std::to_string(w));
  const bool subgroups =
      can.subgroup_widths.size() > 1 || (can.subgroup_widths.size() == 1 && can.subgroup_widths[0] > 1);
  return fmt::format("{}; blocks of up to {} threads with {} shared; {}",
                     does.empty() ? "f32 and integers only" : joined(does, ", "), can.max_block_threads,
                     config::bytes_text(can.shared_bytes),
                     subgroups ? "subgroups of " + joined(widths, ", ") : "no subgroups");
}

class Table {
 public:
  void print(const Survey& s) {
    for (const BackendReport& row : s.backends) backend(row, s);
    fmt::print("\n");
    if (s.chosen.device) paragraph("New arrays go to ", s.chosen.why, 4);
  }

 private:
  void backend(const BackendReport& row, const Survey& s) {
    bool any = false;
    for (const DeviceInfo& info : row.devices) any = any || usable(info.state);
    fmt::print("{} {} ({}): {}{}\n", style_.mark(any), style_.strong(title(row.backend)), backend_name(row.backend),
               state_name(row.state), row.file.empty() ? "" : ", " + row.file);
    for (const DeviceInfo& info : row.devices) device(info, s);
    if (!row.devices.empty() && row.reason == row.devices.front().reason) return;  // said with the device
    reasons(row.reason, row.remedy, 4);
  }

  void device(const DeviceInfo& info, const Survey& s) {
    const auto opened = s.opened.find(info.device);
    std::string memory = gibibytes(info.total_memory);
    if (opened != s.opened.end() && opened->second.free)
      memory += fmt::format(" ({} free)", gibibytes(*opened->second.free));
    if (info.unified_memory) memory += ", shared with the host";
    const std::string state =
        usable(info.state) ? std::string(state_name(info.state)) : style_.bad(state_name(info.state));
    fmt::print("    [{}] {}: {}, {}\n", to_string(info.device), info.name, memory, state);
    std::vector<std::string> about;
    about.emplace_back(kind_name(info.kind));
    if (!info.vendor.empty()) about.push_back(info.vendor);
    if (info.compute_units)
      about.push_back(fmt::format("{} compute unit{}", info.compute_units, info.compute_units == 1 ? "" : "s"));
    if (!info.driver_version.empty()) about.push_back(info.driver_version);
    if (!info.identity.empty()) about.push_back("identity " + info.identity);
    fmt::print("{}\n", style_.faint("        " + wrapped(joined(about, ", "), 8, columns_, 8)));
    fmt::print("{}\n", style_.faint("        " + wrapped(capability_text(info.can), 8, columns_, 8)));
    std::string reason = info.reason;
    if (reason.empty() && opened != s.opened.end()) reason = opened->second.error;
    reasons(reason, info.remedy, 8);
  }

  void reasons(const std::string& reason, const std::string& remedy, std::size_t indent) {
    const std::string spaces(indent, ' ');
    if (!reason.empty()) paragraph(spaces + "Why:  ", reason, indent + 6);
    if (!remedy.empty()) paragraph(spaces + "Do:   ", remedy, indent + 6);
  }

  void paragraph(const std::string& first, const std::string& text, std::size_t indent) {
    fmt::print("{}{}\n", first, wrapped(text, indent, columns_, text_width(first)));
  }

  Style style_{stdout};
  std::size_t columns_ = columns(stdout);
};

nlohmann::ordered_json json_of(const Capabilities& can) {
  return {{"f16", can.f16},
          {"bf16", can.bf16},
          {"f64", can.f64},
          {"int64", can.int64},
          {"atomic_i64", can.atomic_i64},
          {"atomic_f32", can.atomic_f32},
          {"int8_dot", can.int8_dot},
          {"subgroup_widths", can.subgroup_widths},
          {"max_block_threads", can.max_block_threads},
          {"max_block", can.max_block},
          {"shared_bytes", can.shared_bytes},
          {"max_parameter_bytes", can.max_parameter_bytes},
          {"vector_bytes", can.vector_bytes}};
}

nlohmann::ordered_json json_of(const Survey& s) {
  using Json = nlohmann::ordered_json;
  Json backends = Json::array();
  for (const BackendReport& row : s.backends) {
    Json devices = Json::array();
    for (const DeviceInfo& info : row.devices) {
      const auto opened = s.opened.find(info.device);
      const bool was = opened != s.opened.end();
      devices.push_back({{"device", to_string(info.device)},
                         {"name", info.name},
                         {"vendor", info.vendor},
                         {"driver_version", info.driver_version},
                         {"identity", info.identity},
                         {"kind", kind_name(info.kind)},
                         {"state", state_name(info.state)},
                         {"reason", info.reason.empty() && was ? opened->second.error : info.reason},
                         {"remedy", info.remedy},
                         {"total_memory", info.total_memory},
                         {"free_memory", was && opened->second.free ? Json(*opened->second.free) : Json()},
                         {"unified_memory", info.unified_memory},
                         {"compute_units", info.compute_units},
                         {"capabilities", json_of(info.can)}});
    }
    backends.push_back({{"backend", backend_name(row.backend)},
                        {"state", state_name(row.state)},
                        {"file", row.file},
                        {"reason", row.reason},
                        {"remedy", row.remedy},
                        {"devices", devices}});
  }
  return {{"version", TESSERA_VERSION},
          {"backends", backends},
          {"current",
           {{"device", s.chosen.device ? Json(to_string(*s.chosen.device)) : Json()},
            {"why", s.chosen.why},
            {"error", s.chosen.error}}}};
}

int run(const Options& options) {
  const Survey s = survey(options.list_only);
  if (options.json)
    fmt::print("{}\n", json_of(s).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    Table().print(s);
  if (s.chosen.device) return success;
  fail<DeviceError>({.wrong = s.chosen.error});
}

}  // namespace

Command devices_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = program.add_subcommand("devices", "List the devices of this machine, and why each is or is not used");
  sub->add_flag("--json", options->json, "Write JSON: memory in bytes; what is not known is null or \"\"");
  sub->add_flag("--list-only", options->list_only,
                "Only ask the drivers: open no device, run nothing, and leave free memory out");
  sub->footer(
      R"(Opens each device and runs a first small kernel on it, whose result is known. States, from best to worst:
  verified     the first kernel gave the right result
  enumerated   the driver named it; it was not opened
  quarantined  the first kernel gave a wrong result, or failed
  lost         it reported an error from which it does not recover
  loaded       the driver's library answers, but there is no usable device
  supported    the driver's library was not found, or could not be loaded
  unsupported  this version of Tessera has no code for it here

Examples:
  tessera devices
  tessera devices --json | jq -r .current.why
  TESSERA_DEVICE=opencl tessera devices)");
  return {sub, [options] { return run(*options); }};
}

}  // namespace tessera::app
