// SPDX-License-Identifier: Apache-2.0
// usage: array_programs FIRST_SEED COUNT [DEVICE]
//
// Runs random array programs (tests/array/array_programs.h). Writes each step and its result as a line of JSON, for
// tools/check_arrays_with_numpy.py.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "tests/array/array_programs.h"

int main(int argc, char** argv) try {
  using namespace tessera;
  if (argc < 3) {
    std::fprintf(stderr, "usage: array_programs FIRST_SEED COUNT [DEVICE]\n");
    return 2;
  }
  const DeviceScope scope(argc > 3 ? parse_device(argv[3]) : Device{Backend::cpu, 0});
  const unsigned long long first = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
  for (unsigned long long seed = first; seed < first + count; ++seed) {
    std::printf("{\"program\": %llu}\n", seed);
    test::ProgramOptions options{.seed = seed};
    options.after = [](const test::Step& step, const Array& a) {
      const auto list = [](const auto& values) {
        std::string out = "[";
        for (const auto& v : values) out += (out.size() > 1 ? ", " : "") + std::to_string(v);
        return out + "]";
      };
      std::string hex;
      for (const unsigned char byte : test::bytes_of(a)) {
        hex += "0123456789abcdef"[byte >> 4];
        hex += "0123456789abcdef"[byte & 15];
      }
      std::printf(
          "{\"op\": \"%s\", \"from\": %s, \"numbers\": %s, \"scalar\": \"%s\", \"to\": %zu, \"dtype\": \"%s\", "
          "\"shape\": %s, \"data\": \"%s\"}\n",
          step.operation.c_str(), list(step.from).c_str(), list(step.numbers).c_str(), step.scalar.c_str(), step.to,
          std::string(dtype_name(a.dtype())).c_str(), list(a.shape()).c_str(), hex.c_str());
    };
    test::run_program(options);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "array_programs: %s\n", e.what());
  return 1;
}
