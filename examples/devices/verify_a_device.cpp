// SPDX-License-Identifier: Apache-2.0
// How do I check that a device computes correctly?
// verify_on() reruns each kernel of a function on a second device with the same inputs, and compares the results.
// `tessera verify` does this for every operation of the library.
#include <tessera/array/array.h>
#include <tessera/device/placement/verify_on.h>
#include <tessera/ops/product.h>

#include <cstdio>

using namespace tessera;

int main() {
  const VerifyReport report = verify_on(Device{Backend::interp, 0}, [] {
    const Array x = random_normal({64, 100}, 1), w = random_normal({100, 10}, 2);
    const Array scores = matmul(x, w);
    const Array weights = exp(scores - max(scores, {1}, true));
    (weights / sum(weights, {1}, true)).eval();
  });
  for (const VerifiedKernel& k : report.kernels)
    std::printf("%llu elements of %s differ by at most %s\n", static_cast<unsigned long long>(k.elements),
                k.kernel.c_str(), k.worst < 1e-5 ? "1e-5" : std::to_string(k.worst).c_str());
  std::printf("%s\n", report.agrees() ? "all kernels agree" : to_string(report).c_str());
  return report.agrees() && !report.kernels.empty() ? 0 : 1;
}

// Output:
// ...
// all kernels agree
