// SPDX-License-Identifier: Apache-2.0
// Text results of child processes in driver fault tests: states, results and errors.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/error.h"

namespace tessera::test {

/// "state|file|reason|remedy|devices"
inline std::string row_of(Backend backend) {
  const BackendReport& r = discover(backend);
  return std::string(state_name(r.state)) + "|" + r.file + "|" + r.reason + "|" + r.remedy + "|" +
         std::to_string(r.devices.size());
}
/// Joins the parts in order, with newlines between them.
inline std::string lines(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "\n") + part;
  return out;
}

/// 0, 1, 2 and so on, a thousand numbers.
inline std::vector<float> counted_floats() {
  std::vector<float> data(1000);
  std::iota(data.begin(), data.end(), 0.0f);
  return data;
}
/// Computes with an array of these numbers and downloads the result: "right", or what is wrong.
inline std::string arithmetic(const Array& x) {
  const std::vector<float> got = (x * 2.0f + 1.0f).to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != 2 * static_cast<float>(i) + 1)
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]);
  return "right";
}
/// Returns the result of `work`, or the type and text of the error that it throws.
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
/// Checks that the fake drivers reported nothing in the text (breach_lines).
inline void expect_clean(const std::string& text) { EXPECT_EQ(text.find("BREACH"), text.npos) << text; }

}  // namespace tessera::test
