// SPDX-License-Identifier: Apache-2.0
// Collects the data of `tessera devices` and `tessera doctor` and prints it as text or JSON: a row for each backend,
// the result of opening each device, and the current device.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "terminal.h"
#include "tessera/device/device.h"

namespace tessera::app {

/// The result of opening a device.
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

/// Called after each backend with the results so far. The last element of `backends` is the new one.
using Row = std::function<void(const Survey&)>;
/// Probes the backends in order. Unless `list_only` is true, opens each device, which runs a first small kernel.
Survey survey(bool list_only, const Row& row = {});
bool usable(DeviceState state);
/// True if the device is usable and opening it did not fail.
bool usable(const DeviceInfo& info, const Survey& s);
/// Returns the usual spelling of a backend, such as "CUDA" or "oneAPI".
std::string_view title(Backend backend);
nlohmann::ordered_json json_of(const Survey& s);

/// Prints rows to standard output.
class Table {
 public:
  /// Prints a backend's row, with its devices, reasons and remedies, and flushes.
  void backend(const BackendReport& row, const Survey& s);
  /// Prints `first` and then `text`, wrapped at spaces. The second line and all later lines are indented by `indent`.
  void paragraph(const std::string& first, const std::string& text, std::size_t indent);
  void reasons(const std::string& reason, const std::string& remedy, std::size_t indent);
  const Style& style() const { return style_; }

 private:
  void device(const DeviceInfo& info, const Survey& s);
  void parts(const BackendReport& row);
  Style style_{output()};
  std::size_t columns_ = columns(output());
};

}  // namespace tessera::app
