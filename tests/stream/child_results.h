// SPDX-License-Identifier: Apache-2.0
// Converts states, results and errors to text, as results of child processes in tests of driver faults.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/error.h"

namespace tessera::test {

/// Returns "state|file|reason|remedy|number of devices".
inline std::string row_of(Backend backend) {
  const BackendReport& r = discover(backend);
  return std::string(state_name(r.state)) + "|" + r.file + "|" + r.reason + "|" + r.remedy + "|" +
         std::to_string(r.devices.size());
}
/// Joins the parts with newlines.
inline std::string lines(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "\n") + part;
  return out;
}

/// Returns the numbers from 0 to 999.
inline std::vector<float> counted_floats() {
  std::vector<float> data(1000);
  std::iota(data.begin(), data.end(), 0.0f);
  return data;
}
/// Computes with an array of these numbers and downloads the result. Returns "right", or a description of the error.
inline std::string arithmetic(const Array& x) {
  const std::vector<float> got = (x * 2.0f + 1.0f).to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != 2 * static_cast<float>(i) + 1)
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]);
  return "right";
}
/// Returns the result of `work`. If it throws, returns the type and message of the error.
template <class F>
std::string outcome_of(F&& work) {
  try {
    return work();
  } catch (const OutOfMemory& e) {
    return std::string("OutOfMemory: ") + e.what();
  } catch (const DeviceError& e) {
    return std::string("DeviceError: ") + e.what();
  } catch (const KernelError& e) {
    return std::string("KernelError: ") + e.what();
  }
}
/// Checks that the text contains no violations reported by the fake drivers (see breach_lines).
inline void expect_clean(const std::string& text) { EXPECT_EQ(text.find("BREACH"), text.npos) << text; }

}  // namespace tessera::test
