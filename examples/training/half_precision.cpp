// SPDX-License-Identifier: Apache-2.0
// How do I train and run a model in 16 bits?
// MixedPrecision trains with 16-bit copies of f32 weights. compile() converts a trained model for inference.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  // Points that are inside or outside of a circle.
  const Array points = random_uniform({512, 2}, 7, -1, 1).eval();
  const Array inside = (sum(points * points, {1}) < 0.5).astype(DType::i32).eval();
  auto model = setup(sequential(dense<2, 64>, relu, dense<64, 64>, relu, dense<64, 2>), {.seed = 1});

  // Small gradients underflow in f16, so the loss is scaled. Steps that overflow are skipped.
  Adam optimiser(model, {.lr = 1e-2});
  MixedPrecision mixed(model, {.dtype = DType::f16});
  for (std::uint64_t step = 0; step < 100; ++step) {
    Training mode({.seed = 1, .counter = Counter(step)});
    auto [loss, gradient] =
        mixed.value_and_grad([&](const auto& m) { return cross_entropy(m(points), inside); })(model);
    mixed.step(optimiser, model, gradient, mode);
  }
  const float learned = accuracy(model(points), inside).item<float>();
  std::printf("trained with f16 copies of %s weights: accuracy %.1f %%, loss scale %.0f\n",
              std::string(dtype_name(model.get<0>().weight.dtype())).c_str(), 100.0 * static_cast<double>(learned),
              mixed.scale());

  // Inference with half or a quarter of the memory.
  bool good = learned > 0.95f && model.get<0>().weight.dtype() == DType::f32;
  for (const CompilePrecision precision :
       {CompilePrecision::f32, CompilePrecision::f16, CompilePrecision::mixed, CompilePrecision::q8_0}) {
    const Compiled narrow = compile(model, {.level = CompileLevel::aggressive, .precision = precision});
    const float right = accuracy(narrow(points), inside).item<float>();
    std::uint64_t bytes = 0;
    for (const auto& layer : narrow.report().layers) bytes += layer.bytes;
    std::printf("%-5s %5llu bytes of parameters, accuracy %.1f %%\n",
                std::string(compile_precision_name(precision)).c_str(), static_cast<unsigned long long>(bytes),
                100.0 * static_cast<double>(right));
    good = good && right > learned - 0.02f;
  }
  return good ? 0 : 1;
}

// Output:
// trained with f16 copies of f32 weights: accuracy ... %, loss scale ...
// f32   17928 bytes of parameters, accuracy ... %
// f16    8964 bytes of parameters, accuracy ... %
// mixed  8964 bytes of parameters, accuracy ... %
// q8_0   6472 bytes of parameters, accuracy ... %
