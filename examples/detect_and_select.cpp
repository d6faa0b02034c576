// SPDX-License-Identifier: Apache-2.0
// Which processor works: found, named, absent; parts of a program on different ones; what stays where.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  // Detect: a GPU if there is one that works, else the CPU, and why.
  const Device chosen = current_device();
  std::printf("%s\n", why_current_device().c_str());

  // What is available, asked of each backend.
  for (const Backend backend : {Backend::cuda, Backend::rocm, Backend::metal}) {
    const BackendReport& report = discover(backend);
    std::printf("%-6s %zu devices%s%s\n", std::string(backend_name(backend)).c_str(), report.devices.size(),
                report.devices.empty() ? ": " : "", report.reason.c_str());
  }

  // Select: by name, for a scope. A device that is not there is an error, and never another one instead.
  int refused = 0;
  try {
    const DeviceScope scope(Device{Backend::cuda, 99});
  } catch (const DeviceError& e) {
    std::printf("%s\n", e.what());
    ++refused;
  }
  const Device fallback = has_gpu() ? gpu_device() : Device{Backend::cpu, 0};

  // Mixed: preparation on the CPU, the model on the chosen device, the rest on the CPU again.
  const auto model = setup(sequential(dense<784, 128>, relu, dense<128, 10>), {.seed = 1});
  const Device cpu{Backend::cpu, 0};
  const Array prepared = [&] {
    const DeviceScope scope(cpu);
    const Array raw = random_uniform({32, 784}, 7, 0, 255);
    return ((raw - mean(raw)) / 64).eval();
  }();
  const Array predictions = model(prepared.to(chosen));
  const Array classes = argmax(predictions.to(cpu), 1);

  // Memory: moved once, used again and again; what a loop moves can be read back.
  const Array x = prepared.to(chosen);
  std::uint64_t copies = 0;
  {
    const Placement counted;
    for (int epoch = 0; epoch < 10; ++epoch) model(x).eval();
    for (const auto& c : counted.log().copies) copies += c.to_device_count + c.to_host_count;
  }
  Queue::of(chosen).finish();  // before a clock is read: launches return at once
  std::printf("10 passes on %s, %llu copies to or from it\n", to_string(chosen).c_str(),
              static_cast<unsigned long long>(copies));

  // First run: kernels are compiled then, and kept on disk for later programs.
  const Compiled warm = compile(model, {.device = chosen, .input = {784}});
  const bool recorded = warm.report().recorded;
  return refused == 1 && classes.device() == cpu && classes.size() == 32 && copies == 0 && recorded &&
                 fallback.backend != Backend::interp
             ? 0
             : 1;
}
