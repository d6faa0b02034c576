// SPDX-License-Identifier: Apache-2.0
// `tessera bench`: table, JSON and errors. The tests do not depend on measured times.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/app_program.h"
#include "tests/support/errors.h"

using namespace tessera::test;

namespace {

TEST(Bench, PrintsATableForEachDevice) {
  const Outcome o = run({"bench", "--layers", "32,16,4", "--batch", "3", "--devices", "cpu", "--seconds", "0.05"});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_contains(o.out, {"32-16-4 with 3 samples, precision f32", "first ms", "median us", "quartiles us", "cpu:0",
                          "eager", "compiled", "of limit", "GB/s of a memory copy"});
}

TEST(Bench, JsonMatchesTheTable) {
  const Outcome o =
      run({"bench", "--layers", "64,32,4", "--precision", "q8_0", "--devices", "cpu", "--seconds", "0.05", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json.at("layers"), (std::vector<int>{64, 32, 4}));
  EXPECT_EQ(json.at("precision"), "q8_0");
  for (const auto& d : json.at("devices")) {
    EXPECT_EQ(d.at("device"), "cpu:0");
    EXPECT_GT(d.at("copy_bytes_per_second").get<double>(), 1e6);
    EXPECT_GT(d.at("least_seconds").get<double>(), 0);
    for (const auto& r : d.at("runs")) {
      EXPECT_EQ(r.at("how"), "compiled");
      EXPECT_GE(r.at("rounds").get<int>(), 15);
      const double low = r.at("quartiles_seconds").at(0), high = r.at("quartiles_seconds").at(1);
      EXPECT_LE(low, r.at("median_seconds").get<double>());
      EXPECT_GE(high, r.at("median_seconds").get<double>());
      EXPECT_GT(r.at("first_seconds").get<double>(), 0);
    }
  }
}

TEST(Bench, RejectsInvalidArguments) {
  const auto fails = [](std::vector<std::string> arguments, std::initializer_list<std::string_view> parts) {
    arguments.insert(arguments.begin(), "bench");
    const Outcome o = run(arguments);
    EXPECT_NE(o.code, 0);
    expect_contains(o.err, parts);
  };
  fails({"--layers", "784"}, {"input and an output"});
  fails({"--layers", "784,x"}, {"size = x"});
  fails({"--precision", "f8"}, {"f32, bf16, f16, mixed or q8_0"});
  fails({"--devices", "cuda:77"}, {"cuda:77"});
  fails({"--batch", "0"}, {"--batch"});
}

}  // namespace
