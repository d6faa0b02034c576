// SPDX-License-Identifier: Apache-2.0
// What is available, and why something is not. What was asked for and is not there is an error, and never another
// device instead; a program that has an alternative says so.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  // Asked of each backend. What is missing has a reason, and mostly a remedy.
  for (const Backend backend : {Backend::cuda, Backend::rocm, Backend::metal}) {
    const BackendReport& report = discover(backend);
    std::printf("%s available: %s\n", std::string(backend_name(backend)).c_str(),
                report.devices.empty() ? "no" : "yes");
    if (report.devices.empty()) std::printf("  %s\n  %s\n", report.reason.c_str(), report.remedy.c_str());
  }

  bool refused = false;
  try {
    const DeviceScope scope(Device{Backend::metal, 99});
  } catch (const DeviceError& e) {
    std::printf("\n%s\n", e.what());
    refused = true;
  }

  // The alternative, in the program's text.
  if (!has_gpu()) std::printf("\nNo GPU was found: this goes on with the CPU.\n");
  const DeviceScope scope(has_gpu() ? gpus().front() : Device{Backend::cpu, 0});
  const Array x = Array::arange(10);
  std::printf("\n0 + ... + 9 is %.0f, computed on %s\n", static_cast<double>(sum(x).item<float>()),
              to_string(x.device()).c_str());
  return refused && sum(x).item<float>() == 45 ? 0 : 1;
}
