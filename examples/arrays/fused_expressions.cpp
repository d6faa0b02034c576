// SPDX-License-Identifier: Apache-2.0
// How do I compute with arrays, and when does the computation run?
// Elementwise operations are lazy: an expression runs as one fused kernel when its values are needed.
#include <tessera/array/array.h>

#include <algorithm>
#include <cmath>
#include <iostream>

using namespace tessera;

int main() {
  const Array x = random_normal({1000, 300}, /*seed=*/1);
  const Array row = random_uniform({300}, /*seed=*/2, 1.0, 2.0);
  x.eval(), row.eval();

  const auto launches_before = fused_launches();
  const Array wave = exp(-0.5 * x * x) / row;             // nothing runs yet
  const Array z = where(wave > 0.25, tanh(wave), 0) + 1;  // nothing runs here either
  const bool was_pending = z.pending();
  const std::vector<float> numbers = z.to_vector<float>();  // eight operations, one kernel
  const auto elementwise = fused_launches() - launches_before;

  // A reduction is fused with the expression that it reduces, so the squares are never stored.
  const float mean_square = mean(x * x).item<float>();

  const auto xs = x.to_vector<float>(), rows = row.to_vector<float>();
  double worst = 0, sum = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double w = std::exp(-0.5 * xs[i] * xs[i]) / rows[i % 300];
    // Near the threshold, rounding determines the branch, so both results are accepted.
    if (std::abs(w - 0.25) > 1e-5) worst = std::max(worst, std::abs(numbers[i] - ((w > 0.25 ? std::tanh(w) : 0) + 1)));
    sum += static_cast<double>(xs[i]) * xs[i];
  }
  std::cout << to_string(z.slice(0, 0, 2).slice(1, 0, 4)) << "\n"
            << "kernels for the elementwise part: " << elementwise << "\n"
            << "mean of squares: " << mean_square << "\n";
  const bool right = was_pending && elementwise == 1 && worst < 1e-5 &&
                     std::abs(mean_square - sum / static_cast<double>(xs.size())) < 1e-4;
  return right ? 0 : 1;
}

// Output:
// array([[      1, 1.28..., 1.44..., 1.30...],
//        [1.44..., 1.49..., 1.41..., 1.59...]], f32, ...)
// kernels for the elementwise part: 1
// mean of squares: 1.00...
