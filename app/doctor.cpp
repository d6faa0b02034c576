// SPDX-License-Identifier: Apache-2.0
// `tessera doctor`: answers the question "Why isn't my GPU used?". Shows the hardware, the results of each backend, and
// reasons and remedies for failures. Then runs and measures a first computation on each working device.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "arguments.h"
#include "command.h"
#include "measure.h"
#include "survey.h"
#include "tessera/base/error.h"
#include "tessera/base/os/child.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/printable.h"
#include "tessera/device/queue/copy_path.h"
#include "tessera/linalg/linalg.h"

namespace tessera::app {
namespace {

constexpr const char* own_kernels = "Tessera's kernels";

struct DoctorArguments {
  bool json = false, remembered = false, no_figures = false;
  int limit = 60;
};

struct Diagnosis {
  Survey survey;
  std::vector<os::DisplayCard> cards;
  std::vector<os::DeviceFile> files;
  std::string container;
  std::vector<std::string> variables;
  std::map<Device, Figures> figures;
  struct Pair {
    Device a, b;
    CopyPath there, back;  ///< from a to b, and from b to a
    std::string error;     ///< the reason if the pair could not be tested
  };
  std::vector<Pair> pairs;  ///< pairs of working GPUs of the same backend
  bool waiting = false;     ///< true if a device did not finish in time, so that exit handlers may block
};

std::string vendor_name(std::uint32_t vendor) {
  switch (vendor) {
    case os::nvidia: return "NVIDIA";
    case os::amd: return "AMD";
    case os::intel: return "Intel";
    default: return fmt::format("vendor {:04x}", vendor);
  }
}

/// Returns the backends that support cards of this vendor.
std::vector<Backend> backends_of(std::uint32_t vendor) {
  switch (vendor) {
    case os::nvidia: return {Backend::cuda, Backend::opencl};
    case os::amd: return {Backend::rocm, Backend::opencl};
    case os::intel: return {Backend::oneapi, Backend::opencl};
    default: return {Backend::opencl};
  }
}

bool is_gpu(const DeviceInfo& info) {
  return info.kind == DeviceKind::discrete_gpu || info.kind == DeviceKind::integrated_gpu;
}

bool works(const Figures& f) { return f.ended && f.error.empty() && f.right; }

/// True if the current device computes correctly.
bool healthy(const Diagnosis& d) {
  if (!d.survey.chosen.device) return false;
  const Device device = *d.survey.chosen.device;
  if (const auto f = d.figures.find(device); f != d.figures.end()) return works(f->second);
  for (const BackendReport& row : d.survey.backends)
    for (const DeviceInfo& info : row.devices)
      if (info.device == device) return info.state == DeviceState::verified;
  return false;
}

/// Returns why the current device does not work, or an empty string if it works.
std::string ailment(const Diagnosis& d, const DeviceInfo& info) {
  const std::string name = to_string(info.device);
  if (const auto f = d.figures.find(info.device); f != d.figures.end()) {
    if (!f->second.ended) return name + " did not finish its first computation in time.";
    if (!f->second.error.empty()) return fmt::format("{} failed: {}", name, f->second.error);
    return f->second.right ? "" : name + " computed wrong results.";
  }
  if (info.state == DeviceState::verified) return "";
  const auto opened = d.survey.opened.find(info.device);
  const bool failed = opened != d.survey.opened.end() && !opened->second.error.empty();
  return fmt::format("{} does not work: {}", name, failed ? opened->second.error : info.reason);
}

/// Returns the summary: whether a GPU is used, and if not, why.
std::string verdict(const Diagnosis& d) {
  if (!d.survey.chosen.device) return "New arrays have no device: " + d.survey.chosen.error;
  const Device device = *d.survey.chosen.device;
  DeviceInfo info;
  std::string listed;  // GPUs that drivers list, but that are not used
  for (const BackendReport& row : d.survey.backends)
    for (const DeviceInfo& each : row.devices) {
      if (each.device == device)
        info = each;
      else if (is_gpu(each))
        listed += fmt::format("{}{}", listed.empty() ? "" : ", ", to_string(each.device));
    }
  const std::string wrong = ailment(d, info);
  std::string text;
  if (is_gpu(info) && wrong.empty())
    text = fmt::format("A GPU is used: {} ({}).", to_string(device), info.name);
  else if (d.survey.chosen.why.find("automatically") == std::string::npos)
    text = fmt::format("The device was set explicitly, so no other is used: {}.", d.survey.chosen.why);
  else if (is_gpu(info))
    return fmt::format("The selected GPU does not work: {}", wrong);
  else if (!listed.empty())
    text = fmt::format("No GPU is used, although drivers list {}: see the reasons and remedies there.", listed);
  else if (d.cards.empty())
    text = fmt::format("No GPU is used, because this machine has none: there is no graphics card on its PCI bus{}.",
                       d.container.empty() ? "" : fmt::format(" (as seen from this container, {})", d.container));
  if (text.empty()) {
    text = "No GPU is used, although there is a graphics card:";
    for (const os::DisplayCard& card : d.cards) {
      std::vector<std::string> names;
      for (Backend backend : backends_of(card.vendor)) names.emplace_back(title(backend));
      text += fmt::format(" {} at {} should appear under {}: see the remedies there.", vendor_name(card.vendor),
                          card.address, fmt::join(names, " or "));
    }
  }
  if (!wrong.empty()) return text + " But " + wrong;
  if (!d.figures.contains(device)) return text;
  return text + fmt::format(" {} works, and its results are correct.", to_string(device));
}

std::string number(double value) {
  return value >= 100  ? fmt::format("{:.0f}", value)
         : value >= 10 ? fmt::format("{:.1f}", value)
         : value >= 1  ? fmt::format("{:.2f}", value)
                       : fmt::format("{:.2g}", value);  // not 0.00, because slow devices have small values
}

std::string figures_text(const Figures& f) {
  if (!f.ended) return "did not finish in time";
  if (!f.error.empty()) return "failed: " + f.error;
  return fmt::format("{}{}arithmetic {} GFLOP/s (f32), product of {} x {} at {} GFLOP/s, first kernel after {} ms",
                     f.right ? "" : "WRONG RESULTS; ",
                     f.copy_bytes == 0 ? "" : fmt::format("memory {} GB/s, ", number(f.copy_bytes / 1e9)),
                     number(f.fma_operations / 1e9), f.product_size, f.product_size, number(f.product_operations / 1e9),
                     number(f.compile_seconds * 1e3));
}

std::string access_text(os::Access access) {
  return access == os::Access::granted ? "accessible" : "NOT accessible to this user";
}

void print_machine(const Diagnosis& d, Table& table) {
  const Style& style = table.style();
  app::print("{}\n", style.strong("Hardware"));
  for (const os::DisplayCard& card : d.cards)
    app::print("    card {}: {} {:04x}, {}\n", card.address, vendor_name(card.vendor), card.device,
               card.module.empty() ? "no kernel driver" : "kernel driver " + card.module);
  if (d.cards.empty()) app::print("    no graphics card on the PCI bus\n");
  for (const os::DeviceFile& file : d.files)
    app::print("    {}: {} (group {})\n", printable_line(file.path), access_text(file.access), file.group);
  if (d.files.empty()) app::print("    no device files of GPUs (/dev/nvidia*, /dev/kfd, /dev/dri/renderD*)\n");
  if (!d.container.empty()) app::print("    inside a container ({})\n", d.container);
  for (const std::string& variable : d.variables) app::print("    {}\n", printable_text(variable));
  app::print("\n{}\n", style.strong("Backends"));
  std::fflush(output());
}

/// True if devices of this backend may access each other's memory.
bool has_peers(Backend backend) {
  return backend == Backend::cuda || backend == Backend::rocm || backend == Backend::oneapi;
}

/// Tests copies between each pair of working devices of a backend. Only the first few devices are tested.
void pair_up(Diagnosis& d, const DoctorArguments& o, Table& table) {
  constexpr std::size_t most_paired = 8;
  for (const BackendReport& each : d.survey.backends) {
    if (!has_peers(each.backend)) continue;
    std::vector<Device> working;
    for (const DeviceInfo& info : each.devices) {
      const auto f = d.figures.find(info.device);
      if (working.size() < most_paired && usable(info, d.survey) && (f == d.figures.end() || works(f->second)))
        working.push_back(info.device);
    }
    for (std::size_t i = 0; i < working.size(); ++i)
      for (std::size_t j = i + 1; j < working.size(); ++j) {
        Diagnosis::Pair pair{working[i], working[j], CopyPath::host, CopyPath::host, {}};
        try {
          pair.there = copy_path(pair.b, pair.a);
          pair.back = copy_path(pair.a, pair.b);
        } catch (const Error& e) {
          pair.error = e.what();
        }
        if (!o.json) {
          const bool well = pair.error.empty() && pair.there != CopyPath::failed_check;
          const std::string_view there = to_string(pair.there), back = to_string(pair.back);
          table.paragraph(fmt::format("{} copies between {} and {}: ", table.style().mark(well), to_string(pair.a),
                                      to_string(pair.b)),
                          !pair.error.empty() ? pair.error
                          : there == back     ? std::string(there)
                                              : fmt::format("there {}; back {}", there, back),
                          4);
          std::fflush(output());
        }
        d.pairs.push_back(std::move(pair));
      }
  }
}

/// Collects all results. Prints them as they become available, unless JSON is requested.
Diagnosis examine(const DoctorArguments& o, Table& table) {
  Diagnosis d;
  if (!o.remembered) rescan();
  d.cards = os::display_cards();
  d.files = os::device_files();
  d.container = os::container();
  d.variables = os::variables_named(
      "CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES= GPU_DEVICE_ORDINAL= ZE_AFFINITY_MASK= "
      "ONEAPI_DEVICE_SELECTOR= OCL_ICD_ OPENCL_VENDOR_PATH= LD_LIBRARY_PATH= TESSERA_");
  if (!o.json) print_machine(d, table);
  const Row row = [&](const Survey& so_far) { table.backend(so_far.backends.back(), so_far); };
  d.survey = survey(false, o.json ? Row() : row);
  if (o.no_figures) return pair_up(d, o, table), d;
  Progress progress(false);
  for (const BackendReport& each : d.survey.backends)
    for (const DeviceInfo& info : each.devices) {
      const bool chosen = d.survey.chosen.device == info.device;
      if (!usable(info, d.survey)) continue;
      if (is_reference(info.device.backend) && !chosen) continue;  // its speed does not matter
      progress.update(fmt::format("measuring {} ({})", to_string(info.device), info.name));
      const Figures f = measure(info.device, std::chrono::seconds(o.limit));
      d.waiting = d.waiting || !f.ended;
      progress.clear();
      if (!o.json) {
        if (d.figures.empty()) app::print("\n{}\n", table.style().strong("Measurements"));
        table.paragraph(fmt::format("{} {}: ", table.style().mark(works(f)), to_string(info.device)), figures_text(f),
                        4);
        std::fflush(output());
      }
      d.figures[info.device] = f;
    }
  pair_up(d, o, table);
  return d;
}

nlohmann::ordered_json json_of(const Diagnosis& d) {
  using Json = nlohmann::ordered_json;
  Json all = json_of(d.survey), cards = Json::array(), files = Json::array(), figures = Json::object();
  for (const os::DisplayCard& card : d.cards)
    cards.push_back({{"address", card.address},
                     {"vendor", fmt::format("{:04x}", card.vendor)},
                     {"device", fmt::format("{:04x}", card.device)},
                     {"kernel_driver", card.module}});
  for (const os::DeviceFile& file : d.files)
    files.push_back({{"path", file.path}, {"usable", file.access == os::Access::granted}, {"group", file.group}});
  for (const auto& [device, f] : d.figures)
    figures[to_string(device)] = {{"ended", f.ended},
                                  {"error", f.error},
                                  {"right", f.right},
                                  {"first_kernel_seconds", f.compile_seconds},
                                  {"copy_bytes_per_second", f.copy_bytes},
                                  {"fma_flops", f.fma_operations},
                                  {"product_size", f.product_size},
                                  {"product_flops", f.product_operations}};
  all["machine"] = {{"cards", cards}, {"device_files", files}, {"container", d.container}, {"variables", d.variables}};
  all["figures"] = figures;
  Json pairs = Json::array();
  for (const Diagnosis::Pair& pair : d.pairs)
    pairs.push_back({{"devices", {to_string(pair.a), to_string(pair.b)}},
                     {"there", to_string(pair.there)},
                     {"back", to_string(pair.back)},
                     {"error", pair.error}});
  all["copies"] = pairs;
  all["linear_algebra"] = linalg::provider();
  all["fourier_transforms"] = own_kernels;
  all["verdict"] = verdict(d);
  all["healthy"] = healthy(d);
  return all;
}

int run_doctor(const DoctorArguments& o) {
  Table table;
  const Diagnosis d = examine(o, table);
  if (o.json) {
    app::print("{}\n", json_of(d).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    app::print("\n{}\n", table.style().strong("Linear algebra and Fourier transforms"));
    table.paragraph("    factorisations on every device: ", linalg::provider() + ", on the host", 4);
    table.paragraph("    products: ", fmt::format("{}, and large ones by the libraries named above", own_kernels), 4);
    table.paragraph("    Fourier transforms on every device: ", own_kernels, 4);
    app::print("\n");
    table.paragraph(table.style().mark(healthy(d)) + " ", verdict(d), 2);
  }
  const int code = healthy(d) ? success : failed;
  if (!d.waiting) return code;
  std::fflush(output());
  os::leave(code);  // skips exit handlers, because the driver's would block
}

}  // namespace

Command doctor_command(CLI::App& program) {
  auto options = std::make_shared<DoctorArguments>();
  CLI::App* sub = program.add_subcommand("doctor", "Diagnose why a GPU is not used, and measure the devices that work");
  sub->add_flag("--json", options->json, "Print JSON: the output of `tessera devices --json`, and more");
  sub->add_flag("--remembered", options->remembered, "Use cached answers of drivers (default: probe all again)");
  sub->add_flag("--no-figures", options->no_figures, "Do not measure devices");
  sub->add_option("--limit", options->limit, "Seconds to wait for each device")
      ->transform(integer_in_range(1, 3600))
      ->capture_default_str();
  sub->footer(
      R"(Inspects the machine (cards, kernel drivers, device files, containers, variables that hide devices), probes each driver
in a helper process, and opens every device. On each working device, it runs a copy kernel, a multiply-add kernel and a
matrix product, and checks the results. It also tests direct copies between each pair of GPUs, and opens the LAPACK library
that computes factorisations.

Exit code 0 if the device for new arrays computes correctly, else 1.

Examples:
  tessera doctor
  TESSERA_DEVICE=cuda tessera doctor
  tessera doctor --json | jq '{verdict, figures}')");
  return {sub, [options] { return run_doctor(*options); }};
}

}  // namespace tessera::app
