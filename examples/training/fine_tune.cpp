// SPDX-License-Identifier: Apache-2.0
// How do I load pretrained weights and train only some layers?
// load_model() maps the names in a file. freeze() excludes parameters from gradients and optimisers.
#include <tessera/grad/grad.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/losses.h>
#include <tessera/nn/norms.h>
#include <tessera/nn/optimiser.h>
#include <tessera/nn/saved_model.h>
#include <tessera/nn/sequential.h>

#include <cstdio>

using namespace tessera;

int main() {
  // PyTorch saved this file with its own names. Mapping a name to "" skips the array.
  NameMap names = names_of_pytorch();
  names.insert(names.end(), {{"fc1.*", "0.*"}, {"norm.*", "1.*"}, {"fc2.*", "3.*"}, {"test.*", ""}});
  auto model = setup(sequential(dense<6, 8>, LayerNorm{}, relu, dense<8, 3>), {.seed = 1, .input = {6}});
  load_model(model, "tests/data/pytorch_named.safetensors", {.names = names});  // run this at the top of the repository

  freeze(model, "0.*");
  const auto first = model.get<0>().weight.to_vector<float>(), last = model.get<3>().weight.to_vector<float>();
  const Array x = random_normal({64, 6}, 2).eval(), y = argmax(x.slice(1, 0, 3), 1).astype(DType::i32).eval();
  Adam optimiser(model, {.lr = 1e-2});
  float before = 0, after = 0;
  for (int step = 0; step < 100; ++step) {
    const auto [loss, gradient] = value_and_grad([&](const auto& m) { return cross_entropy(m(x), y); })(model);
    optimiser.step(model, gradient);
    after = loss.item<float>();
    if (step == 0) before = after;
  }
  const bool kept = model.get<0>().weight.to_vector<float>() == first;
  const bool trained = model.get<3>().weight.to_vector<float>() != last;
  std::printf("loss %s; first layer %s, last layer %s\n", after < before ? "fell" : "rose",
              kept ? "unchanged" : "changed", trained ? "trained" : "unchanged");
  return kept && trained && after < before ? 0 : 1;
}

// Output:
// loss fell; first layer unchanged, last layer trained
