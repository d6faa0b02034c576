// SPDX-License-Identifier: Apache-2.0
// A fake of Intel's compiler library (libocloc). It searches an OpenCL C source for kernels and lists them in a text
// that the fake Level Zero driver loads.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/drivers/faults.h"
#include "tests/drivers/image.h"

namespace {
using namespace tessera::fake;

const Faults& faults() {
  static const Faults* const the_faults = new Faults(Faults::from_environment());
  return *the_faults;
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int oclocVersion() { return 1 << 16; }

/// Returns 0 on success. The outputs are the log and the file `<output or source>[_device].bin`.
EXPORT int oclocInvoke(unsigned count, const char** arguments, std::uint32_t sources, const std::uint8_t** data,
                       const std::uint64_t* bytes, const char** names, std::uint32_t, const std::uint8_t**,
                       const std::uint64_t*, const char**, std::uint32_t* outputs, std::uint8_t*** output_data,
                       std::uint64_t** output_bytes, char*** output_names) {
  std::string file, device, output;
  bool suffix = true, compile = false;
  for (unsigned i = 1; i < count; ++i) {
    const std::string option = arguments[i];
    auto value = [&] { return i + 1 < count ? std::string(arguments[++i]) : std::string(); };
    if (option == "compile") compile = true;
    if (option == "-file") file = value();
    if (option == "-device") device = value();
    if (option == "-output") output = value();
    if (option == "-output_no_suffix") suffix = false;
  }
  // Accepts the PCI ids of the devices of the fake Level Zero driver.
  const bool by_id = device == "0x56a0" || device == "0x9a49";
  if (by_id) device = device == "0x56a0" ? "dg2" : "tgllp";
  std::string log;
  std::vector<std::pair<std::string, std::string>> made;
  std::string source;
  bool found = false;
  for (std::uint32_t i = 0; i < sources; ++i)
    if (file == names[i]) {
      source.assign(reinterpret_cast<const char*>(data[i]), bytes[i]);
      found = true;
    }
  if (!compile || !found)
    log = "Invalid option or file: " + file + "\n";
  else if ((device != "dg2" && device != "tgllp" && device != "pvc") || faults().find("no-target"))
    log = "Could not determine device target: " + device + ".\n";
  else if (faults().find("compile"))
    log = file + ":1: error: this compiler is set to reject everything\nBuild failed\n";
  else if (const std::string wrong = complaint(source.c_str(), file); !wrong.empty())
    log = wrong + "Build failed\n";
  const bool right = log.empty();
  if (right) {
    if (output.empty()) output = file.substr(0, file.rfind('.'));
    made.emplace_back(output + (suffix ? "_" + device : "") + ".bin",
                      make_image(intel_magic, device, find_kernels(source, "__kernel")));
    log = "Build succeeded.\n";
  }
  made.emplace_back("stdout.log", log);
  *outputs = static_cast<std::uint32_t>(made.size());
  *output_data = new std::uint8_t*[made.size()];
  *output_bytes = new std::uint64_t[made.size()];
  *output_names = new char*[made.size()];
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto& [name, text] = made[i];
    (*output_data)[i] = new std::uint8_t[text.size() + 1];
    std::memcpy((*output_data)[i], text.c_str(), text.size() + 1);
    (*output_bytes)[i] = text.size();
    (*output_names)[i] = new char[name.size() + 1];
    std::memcpy((*output_names)[i], name.c_str(), name.size() + 1);
  }
  return right ? 0 : log.starts_with("Could not") ? -33 : -11;  // CL_INVALID_DEVICE, CL_BUILD_PROGRAM_FAILURE
}

EXPORT int oclocFreeOutput(std::uint32_t* outputs, std::uint8_t*** data, std::uint64_t** bytes, char*** names) {
  for (std::uint32_t i = 0; i < *outputs; ++i) {
    delete[] (*data)[i];
    delete[] (*names)[i];
  }
  delete[] *data;
  delete[] *bytes;
  delete[] *names;
  *outputs = 0;
  return 0;
}
