// SPDX-License-Identifier: Apache-2.0
// How do I find out why a GPU is not used?
// discover() reports the devices of a backend, or what is missing and how to fix it. `tessera doctor` prints the same.
#include <tessera/array/array.h>

#include <cstdio>

using namespace tessera;

int main() {
  for (const Backend backend : {Backend::cuda, Backend::rocm, Backend::metal}) {
    const BackendReport& report = discover(backend);
    std::printf("%s available: %s\n", std::string(backend_name(backend)).c_str(),
                report.devices.empty() ? "no" : "yes");
    if (report.devices.empty()) std::printf("  %s\n  %s\n", report.reason.c_str(), report.remedy.c_str());
  }

  // If you name a device, you get that device or an error, never a different one.
  bool refused = false;
  try {
    const DeviceScope scope(Device{Backend::metal, 99});
  } catch (const DeviceError& e) {
    std::printf("\n%s\n", e.what());
    refused = true;
  }

  // A program that can also run on the CPU must choose it explicitly.
  const DeviceScope scope(has_gpu() ? gpus().front() : Device{Backend::cpu, 0});
  const Array x = Array::arange(10);
  std::printf("\n0 + ... + 9 = %.0f, computed on %s\n", static_cast<double>(sum(x).item<float>()),
              to_string(x.device()).c_str());
  return refused && sum(x).item<float>() == 45 ? 0 : 1;
}

// Output:
// cuda available: ...
// ...
// rocm available: ...
// ...
// metal available: ...
// ...
// metal:99 does not exist: ...
//
// 0 + ... + 9 = 45, computed on ...
