// SPDX-License-Identifier: Apache-2.0
// Names of the targets of packs (device/launch/kernel_pack.h). Used only in tessera/backend.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::backend {

/// Splits "cpu:x86-64-v3:16" at the last colon after `begin` into "x86-64-v3" and 16. The number is 0 if there is none.
/// Throws DeviceError if it is not a number from 1 to 65536.
inline std::pair<std::string, std::uint32_t> split_units(const std::string& target, std::size_t begin) {
  const std::size_t colon = target.find(':', begin);
  if (colon == target.npos) return {target.substr(begin), 0};
  std::uint32_t units = 0;
  const char* const end = target.data() + target.size();
  const auto [stop, error] = std::from_chars(target.data() + colon + 1, end, units);
  if (error != std::errc() || stop != end || units < 1 || units > 65536)
    fail<DeviceError>({.operation = "compile for " + target,
                       .wrong = "the number of compute units after the last colon is not from 1 to 65536"});
  return {target.substr(begin, colon - begin), units};
}

}  // namespace tessera::backend
