// SPDX-License-Identifier: Apache-2.0
// Properties of a trained network, proven for all inputs of a box as the device computes them; or refuted, with an
// input; and the proof in a file that is checked without the search.
#include <tessera/tessera.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

using namespace tessera;

/// Two rings: the class is 1 where a point is more than 0.6 away from the middle.
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
  const InputBox all = InputBox::of({2}, -1, 1);
  bool good = true;
  const auto say = [&](const char* what, const Proof& proof, Verdict expected) {
    std::printf("%s\n  %s: %s\n", what, to_string(proof.property).c_str(), to_string(proof).c_str());
    good = good && proof.verdict == expected;
    return proof;
  };

  say("For every input, no output is infinite or NaN.", prove(model, finite(), all), Verdict::proven);
  const Proof bounds = say("No output leaves these bounds.", prove(model, bounded(-40, 40), all), Verdict::proven);
  say("In the middle it is class 0, and stays so near by.",
      prove(model, robust(0.3), InputBox::at(Array::from<float>({0, 0}))), Verdict::proven);
  say("The same, with the distance as length.",
      prove(model, robust(0.3, Norm::two), InputBox::at(Array::from<float>({0, 0}))), Verdict::proven);
  say("So it is in a whole corner: output 0 is never above output 1.",
      prove(model, inequality({1, -1}, 0), InputBox::of({2}, 0.7f, 1)), Verdict::proven);
  const Proof wrong = say("But it is not everywhere.", prove(model, inequality({1, -1}, 0), all), Verdict::refuted);
  good = good && verification::wrong_with(wrong.property, model(wrong.counterexample->input).to_vector<float>().data(),
                                          2) != "";

  // A compiled model is verified on its device beside the reference, and its properties are those of the model.
  const Compiled fast = compile(model, {.verify = true, .input = {2}});
  good = good && !find_counterexample(fast, finite(), random_uniform({10'000, 2}, 5, -1, 1));

  // The proof in a file; it is void once the model is another.
  const auto file =
      std::filesystem::temp_directory_path() / ("tessera-prove-a-model-" + std::to_string(::getpid()) + ".json");
  save_certificate(certificate_of(model, bounds), file.string());
  const Certificate certificate = load_certificate(file.string());
  const CertificateCheck check = check_certificate(model, certificate);
  std::printf("the certificate %s\n", to_string(check).c_str());
  auto edited = clone(model);
  edited.get<4>().bias = edited.get<4>().bias + 1e-3;
  const CertificateCheck stale = check_certificate(edited, certificate);
  std::printf("of another model it is %s\n", to_string(stale).c_str());
  std::filesystem::remove(file);
  return good && check.holds && !stale.holds ? 0 : 1;
}
