// SPDX-License-Identifier: Apache-2.0
// The data of `tessera devices` and `tessera doctor`: a row for every backend, the result of opening each device, and
// which device is current; and its output as text and as JSON.
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

/// Probes the backends in order and, unless `list_only`, opens each device, which runs a first small kernel there.
/// `row` is called after each backend with the results so far, the new row last.
using Row = std::function<void(const Survey&)>;
Survey survey(bool list_only, const Row& row = {});
bool usable(DeviceState state);
/// Whether the device computes, as far as is known.
bool usable(const DeviceInfo& info, const Survey& s);
/// The backend's usual spelling: "CUDA", "oneAPI".
std::string_view title(Backend backend);
nlohmann::ordered_json json_of(const Survey& s);

/// Prints rows to standard output.
class Table {
 public:
  /// Prints a backend's row, with its devices, reasons and remedies, and flushes.
  void backend(const BackendReport& row, const Survey& s);
  /// Prints `first`, then `text` wrapped at spaces, further lines indented by `indent`.
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
