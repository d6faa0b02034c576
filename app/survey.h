// SPDX-License-Identifier: Apache-2.0
// What `tessera devices` and `tessera doctor` know of a machine: every backend's row, what opening each device gave,
// and which device is chosen; and how this is written for people and as JSON, once.
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

/// Asks one backend after the other, and unless `list_only` opens each of its devices, which runs a first small kernel
/// there. `row` is called with what is known so far, the new row last, before the next driver is asked.
using Row = std::function<void(const Survey&)>;
Survey survey(bool list_only, const Row& row = {});
bool usable(DeviceState state);
/// Does it compute, as far as is known?
bool usable(const DeviceInfo& info, const Survey& s);
/// "CUDA", "oneAPI", as people write it.
std::string_view title(Backend backend);
nlohmann::ordered_json json_of(const Survey& s);

/// Writes rows to standard output.
class Table {
 public:
  /// The row of a backend, with its devices, reasons and remedies; it is out when this returns.
  void backend(const BackendReport& row, const Survey& s);
  /// `first`, then `text` broken at spaces, further lines behind `indent` spaces.
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
