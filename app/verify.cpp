// SPDX-License-Identifier: Apache-2.0
// `tessera verify`: checks the operations on all devices against plain C++ in double precision, and prints a table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <regex>

#include "arguments.h"
#include "command.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/ops/catalogue.h"

namespace tessera::app {
namespace {

struct VerifyArguments {
  std::vector<std::string> devices;
  std::string operation;
  std::uint64_t seed = 1;
  bool shapes = false, stats = false, json = false, quiet = false;
};

/// The result of a check on one device, or the combined result of several checks.
struct Cell {
  double error = 0;  ///< the largest error, relative to the tolerance
  double seconds = 0;
  int checks = 0, failed = 0;
  std::string text;  ///< the message of an exception
  bool good() const { return failed == 0; }
};

struct Row {
  std::string operation, shape;
  std::vector<Cell> cells;  ///< one per device
};

/// The checks of one row of the table: a single check, or all checks of an operation.
struct Group {
  std::string operation, shape;
  std::vector<const CatalogueCheck*> checks;
};

std::vector<Device> devices_to_check(const VerifyArguments& o) {
  std::vector<Device> devices;
  for (const std::string& name : o.devices) {
    const Device device = parse_device(name);
    device_info(device);  // throws if the device does not exist
    devices.push_back(device);
  }
  if (!devices.empty()) return devices;
  for (const BackendReport& row : discover())
    for (const DeviceInfo& info : row.devices)
      if (info.state == DeviceState::enumerated || info.state == DeviceState::verified) devices.push_back(info.device);
  if (devices.empty()) {
    std::string reasons;
    for (const BackendReport& row : discover())
      reasons += fmt::format("; {}: {}, {}", backend_name(row.backend), state_name(row.state), row.reason);
    fail<DeviceError>({.operation = "verify",
                       .wrong = "there is no device to check" + reasons,
                       .remedy = "`tessera devices` shows the remedies"});
  }
  return devices;
}

std::vector<CatalogueCheck> checks_to_run(const VerifyArguments& o) {
  std::vector<CatalogueCheck> all = check_catalogue(), chosen;
  if (o.operation.empty()) return all;
  const std::regex wanted(o.operation);
  std::vector<std::string> names;
  for (CatalogueCheck& check : all) {
    if (std::ranges::find(names, check.operation) == names.end()) names.push_back(check.operation);
    if (std::regex_search(check.operation, wanted)) chosen.push_back(std::move(check));
  }
  if (chosen.empty())
    fail<ArgumentError>({.operation = "verify",
                         .with = {{"--operation", o.operation}},
                         .wrong = "no operation matches",
                         .remedy = fmt::format("Operations: {}", fmt::join(names, ", "))});
  return chosen;
}

Cell run_check(const CatalogueCheck& check, Device device, std::uint64_t seed) {
  Cell cell{.checks = 1};
  const auto start = std::chrono::steady_clock::now();
  try {
    cell.error = check.run(device, seed);
    if (!(cell.error <= 1)) cell.failed = 1;  // also true for NaN
  } catch (const std::exception& e) {
    cell.failed = 1;
    cell.text = e.what();
    cell.error = INFINITY;
  }
  cell.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return cell;
}

bool worse(double a, double b) { return std::isnan(a) || (!std::isnan(b) && a > b); }

void join(Cell& into, const Cell& cell) {
  if (into.checks == 0 || worse(cell.error, into.error)) into.error = cell.error;
  into.seconds += cell.seconds;
  into.checks += cell.checks;
  into.failed += cell.failed;
}

std::vector<Group> groups_of(const std::vector<CatalogueCheck>& checks, bool each_shape) {
  std::vector<Group> groups;
  for (const CatalogueCheck& check : checks) {
    auto at = groups.end();
    if (!each_shape) at = std::ranges::find(groups, check.operation, &Group::operation);
    if (at == groups.end()) at = groups.insert(at, Group{check.operation, check.shape, {}});
    at->checks.push_back(&check);
  }
  if (!each_shape)
    for (Group& group : groups) group.shape = count_noun(group.checks.size(), "shape");
  return groups;
}

std::string cell_text(const Cell& cell, const Style& style) {
  const std::string error = std::isinf(cell.error) ? "error"
                            : cell.error < 100     ? fmt::format("{:.3f}", cell.error)
                                                   : fmt::format("{:.0e}", cell.error);
  return fmt::format("{} {:>6} {:>7.2f} s", style.mark(cell.good()), error, cell.seconds);
}

/// Prints the table cell by cell. If a driver crashes, the last row and column show the operation and the device.
class TablePrinter {
 public:
  TablePrinter(const std::vector<Group>& groups, const std::vector<Device>& devices, bool silent)
      : style_(output()), silent_(silent) {
    for (const Group& group : groups) {
      first_ = std::max(first_, text_width(group.operation));
      second_ = std::max(second_, text_width(group.shape));
    }
    put(padded("operation", first_) + "  " + padded("cases", second_));
    for (Device device : devices) put("  " + padded(to_string(device), 18));
    put("\n");
  }
  void begin(const Group& group) { put(padded(group.operation, first_) + "  " + padded(group.shape, second_)); }
  void cell(const Cell& cell) { put("  " + padded(cell_text(cell, style_), 18)); }
  void end() { put("\n"); }

 private:
  void put(const std::string& text) {
    if (silent_) return;
    app::print("{}", text);
    std::fflush(output());
  }
  const Style style_;
  const bool silent_;
  std::size_t first_ = 9, second_ = 5;
};

void print_json(const std::vector<Row>& rows, const std::vector<Device>& devices, std::uint64_t seed, int failures) {
  using Json = nlohmann::ordered_json;
  Json checks = Json::array();
  for (const Row& row : rows)
    for (std::size_t d = 0; d < devices.size(); ++d)
      checks.push_back({{"operation", row.operation},
                        {"shape", row.shape},
                        {"device", to_string(devices[d])},
                        {"passed", row.cells[d].good()},
                        {"error", std::isfinite(row.cells[d].error) ? Json(row.cells[d].error) : Json()},
                        {"seconds", row.cells[d].seconds},
                        {"text", row.cells[d].text}});
  app::print("{}\n", Json{{"seed", seed}, {"failures", failures}, {"checks", checks}}.dump(
                         2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run_verify(const VerifyArguments& o) {
  const std::vector<Device> devices = devices_to_check(o);
  const std::vector<CatalogueCheck> checks = checks_to_run(o);
  const std::vector<Group> groups = groups_of(checks, o.shapes);
  std::vector<Row> rows;  // one for each check
  int failures = 0;
  Progress progress(o.quiet);
  progress.step(fmt::format("{} on {}, seed {}", count_noun(checks.size(), "check"),
                            count_noun(devices.size(), "device"), o.seed));
  progress.clear();
  TablePrinter table(groups, devices, o.json);
  for (const Group& group : groups) {
    // On a terminal, a row is printed only when it is complete, because progress lines would overwrite it.
    const bool whole = progress.overwrites();
    if (!whole) table.begin(group);
    std::vector<Row> own;
    for (const CatalogueCheck* check : group.checks) own.push_back({check->operation, check->shape, {}});
    std::vector<Cell> cells;
    for (Device device : devices) {
      progress.step(
          fmt::format("[{}/{}] {} on {}", rows.size() + 1, checks.size(), group.operation, to_string(device)));
      Cell joined;
      for (std::size_t i = 0; i < group.checks.size(); ++i) {
        progress.update(fmt::format("[{}/{}] {} {} on {}", rows.size() + i + 1, checks.size(), group.operation,
                                    own[i].shape, to_string(device)));
        own[i].cells.push_back(run_check(*group.checks[i], device, o.seed));
        join(joined, own[i].cells.back());
      }
      failures += joined.failed;
      if (!whole) table.cell(joined);
      cells.push_back(std::move(joined));
    }
    if (whole) {
      progress.clear();
      table.begin(group);
      for (const Cell& cell : cells) table.cell(cell);
    }
    table.end();
    rows.insert(rows.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  }
  progress.clear();
  if (o.json)
    print_json(rows, devices, o.seed, failures);
  else
    app::print(
        "\nEach number is the largest error of an operation divided by its tolerance; at most 1 is allowed. Times "
        "include compilation.\n");
  std::fflush(output());
  if (o.stats) eprint("\n{}", to_string(placement_log()));
  if (failures == 0) return success;
  for (const Row& row : rows)
    for (std::size_t d = 0; d < devices.size(); ++d)
      if (const Cell& cell = row.cells[d]; !cell.good())
        eprint("{} {} on {}: {}\n", row.operation, row.shape, to_string(devices[d]),
               cell.text.empty() ? fmt::format("the error is {:.3g} times the tolerance (seed {})", cell.error, o.seed)
                                 : cell.text);
  fail<Error>({.operation = "verify",
               .wrong = fmt::format("{} of {} checks failed (above)", failures, rows.size() * devices.size())});
}

}  // namespace

Command verify_command(CLI::App& program) {
  auto o = std::make_shared<VerifyArguments>();
  CLI::App* sub =
      program.add_subcommand("verify", "Check every operation on every device against plain double-precision C++");
  sub->add_option("--device", o->devices, "Only this device; can be repeated (default: all)")->check(require_nonempty);
  sub->add_option("--seed", o->seed, "Seed of the random data")->capture_default_str()->transform(seed_number());
  sub->add_option("--operation", o->operation, "Only operations whose name matches this regular expression")
      ->check([](const std::string& text) {
        try {
          const std::regex tried(text);
          return std::string();
        } catch (const std::regex_error& e) {
          return fmt::format("\"{}\" is not a regular expression: {}", text, e.what());
        }
      });
  sub->add_flag("--shapes", o->shapes, "Print a row for each shape instead of one for each operation");
  sub->add_flag("--stats", o->stats, "Also print which kernels ran where, how many were compiled, and what was copied");
  sub->add_flag("--json", o->json, "Print JSON, with every shape and device");
  sub->add_flag("-q,--quiet", o->quiet, "Do not print on standard error which operation runs on which device");
  sub->footer(R"(Exit code 1 if a check fails.

Examples:
  tessera verify
  tessera verify --device cpu --device opencl:0 --operation 'softmax|attention' --shapes)");
  return {sub, [o] { return run_verify(*o); }};
}

}  // namespace tessera::app
