// SPDX-License-Identifier: Apache-2.0
// How do I prove a property of a network?
// prove() decides whether a property holds for all inputs of a box, as computed in f32, or finds a counterexample.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

/// A classifier of two rings. The class is 1 for points that are more than 0.6 from the origin.
auto trained() {
  auto model = setup(sequential(dense<2, 24>, relu, dense<24, 24>, relu, dense<24, 2>), {.seed = 3});
  Adam optimiser(model, {.lr = 1e-2});
  const Array x = random_uniform({512, 2}, 1, -1, 1).eval();
  const Array outside = (sum(x * x, {1}) > 0.36).astype(DType::i32).eval();
  for (int step = 0; step < 200; ++step) {
    auto [loss, gradient] = value_and_grad([&](const auto& m) { return cross_entropy(m(x), outside); })(model);
    optimiser.step(model, gradient);
  }
  return model;
}

int main() {
  const auto model = trained();
  const InputBox all = InputBox::of({2}, -1, 1), corner = InputBox::of({2}, 0.7f, 1);
  const InputBox origin = InputBox::at(Array::from<float>({0, 0}));
  bool right = true;
  const auto expect = [&](const char* what, const Proof& proof, Verdict expected) {
    std::printf("%-50s %s\n", what, std::string(verdict_name(proof.verdict)).c_str());
    right = right && proof.verdict == expected;
    return proof;
  };

  expect("no output is infinite or NaN", prove(model, finite(), all), Verdict::proven);
  expect("outputs are between -40 and 40", prove(model, bounded(-40, 40), all), Verdict::proven);
  expect("the class is the same within 0.3 of the origin", prove(model, robust(0.3), origin), Verdict::proven);
  expect("the same with Euclidean distance", prove(model, robust(0.3, Norm::two), origin), Verdict::proven);
  expect("output 0 <= output 1 in a corner", prove(model, inequality({1, -1}, 0), corner), Verdict::proven);
  const Proof wrong =
      expect("output 0 <= output 1 everywhere", prove(model, inequality({1, -1}, 0), all), Verdict::refuted);
  const auto y = model(wrong.counterexample->input).to_vector<float>();
  // Properties that cannot be proven, such as a Lipschitz constant, can be tested on data. This also works for compiled
  // models.
  const Compiled fast = compile(model, {.input = {2}});
  const auto found = find_counterexample(fast, lipschitz(1000, 0.1), random_uniform({10'000, 2}, 5, -1, 1));
  std::printf("counterexample in 10000 samples: %s\n", found ? "yes" : "no");
  return right && y[0] > y[1] && !found ? 0 : 1;
}

// Output:
// no output is infinite or NaN                       proven
// outputs are between -40 and 40                     proven
// the class is the same within 0.3 of the origin     proven
// the same with Euclidean distance                   proven
// output 0 <= output 1 in a corner                   proven
// output 0 <= output 1 everywhere                    refuted
// counterexample in 10000 samples: no
