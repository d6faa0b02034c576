// SPDX-License-Identifier: Apache-2.0
// Adds two arrays on the first device, and prints which device that is.
#include <tessera/tessera.h>

#include <iostream>

int main() {
  const tessera::Array x = tessera::Array::arange(1'000'000);
  const double total = tessera::sum(x + x).item<float>();
  std::cout << total << " on " << to_string(x.device()) << '\n';
  return total > 9.9e11 && total < 1.01e12 ? 0 : 1;
}
