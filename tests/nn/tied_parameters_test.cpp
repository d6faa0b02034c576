// SPDX-License-Identifier: Apache-2.0
// Parameters that occur several times in a model, on every device. They have one gradient, one update, and one copy in
// mixed precision.
#include "tessera/nn/pack.h"
#include "tessera/nn/precision.h"
#include "tessera/ops/product.h"
#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::Batch;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

struct Tied {
  Parameter in, bias, out;  ///< `out` is the same array as `in`
  Array operator()(const Array& x) const { return matmul(tanh(matmul(x, in, {.bias = bias})), out); }
};
struct Single {
  Parameter in, bias;
  Array operator()(const Array& x) const { return matmul(tanh(matmul(x, in, {.bias = bias})), in); }
};

TEST_P(OnEveryDevice, SharedParameterHasOneGradientAndOneUpdate) {
  const Array weight = random_normal({6, 6}, 3, 0, 0.4).eval(), bias = Array::zeros({6});
  const Batch data{test::data(16)};
  const auto make = [&] {
    Tied tied{weight.copy(), bias.copy(), {}};
    tied.out = tied.in;
    return setup(tied);
  };
  Tied tied = make();
  const Single single = setup(Single{weight.copy(), bias.copy()});
  const auto loss = [](const auto& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  // The gradient is the sum over both occurrences. It is stored at the first occurrence.
  const auto by = grad([&](const Tied& m) { return loss(m, data); })(tied);
  const auto want = grad([&](const Single& m) { return loss(m, data); })(single);
  EXPECT_EQ(by.in.to_vector<float>(), want.in.to_vector<float>());
  EXPECT_TRUE(by.out.empty());
  // If the first occurrence is frozen, the gradient is stored at the second one.
  Tied half = make();
  freeze(half, "in");
  const auto by_half = grad([&](const Tied& m) { return loss(m, data); })(half);
  EXPECT_TRUE(by_half.in.empty());
  EXPECT_FALSE(by_half.out.empty());
  // Arrays that are not in a model have separate gradients.
  const auto [first, second] =
      grad([](const Array& a, const Array& b) { return sum(a * a * b); }, wrt<0, 1>)(bias, bias);
  EXPECT_EQ(first.size() + second.size(), 12);

  // An optimiser updates the parameter once, whether packed or not, and both occurrences see the update.
  Tied packed = make();
  pack(packed);
  EXPECT_EQ(packed.in.view().byte_offset, packed.out.view().byte_offset);
  EXPECT_EQ(packed.in.view().storage, packed.bias.view().storage);
  EXPECT_EQ(packed.out.to_vector<float>(), weight.to_vector<float>());
  Single alone = clone(single);
  Adam one(alone, {.lr = 0.1}), of_packed(packed, {.lr = 0.1}), of_tied(tied, {.lr = 0.1});
  for (int i = 0; i < 5; ++i) {
    one.step(alone, grad([&](const Single& m) { return loss(m, data); })(alone));
    of_packed.step(packed, grad([&](const Tied& m) { return loss(m, data); })(packed));
    of_tied.step(tied, grad([&](const Tied& m) { return loss(m, data); })(tied));
  }
  for (const Tied* m : {&tied, &packed}) {
    EXPECT_EQ(m->in.to_vector<float>(), alone.in.to_vector<float>());
    EXPECT_EQ(m->out.to_vector<float>(), alone.in.to_vector<float>());
  }
  // The same applies to a trainer, which packs parameters, and to its checkpoints.
  const test::Folder folder;
  const std::string path = folder / "tied.safetensors";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto of = [&]<class M>(const M& m) {
      return Trainer<M>(m, Adam(m, {.lr = 0.1}), [&](const M& n, const Batch& b) { return loss(n, b); },
                        {.clip_norm = 0.5, .precision = {.dtype = dtype}});
    };
    auto trains_single = of(single);
    auto trains_tied = of(make()), goes_on = of(make());
    for (int i = 0; i < 4; ++i) trains_single.step(data), trains_tied.step(data);
    trains_tied.save(path), goes_on.load(path);
    for (int i = 0; i < 4; ++i) trains_single.step(data), trains_tied.step(data), goes_on.step(data);
    for (auto* trainer : {&trains_tied, &goes_on}) {
      const Tied trained = trainer->trained();
      EXPECT_EQ(trained.in.to_vector<float>(), trains_single.model().in.to_vector<float>());
      EXPECT_EQ(trained.out.view().storage, trained.in.view().storage);
      EXPECT_EQ(trained.out.to_vector<float>(), trained.in.to_vector<float>());
    }
  }
  // Different views of the same memory are rejected.
  Tied turned{weight.copy(), bias.copy(), {}};
  turned.out = turned.in.transpose();
  turned = setup(turned);
  const auto refused = [](const char* by, const auto& f) {
    test::expect_throw<ArgumentError>(f, {by, "different views", "in = (6, 6)", "out = (6, 6)"});
  };
  refused("[optimiser]", [&] { Adam{turned}; });
  refused("[Trainer]",
          [&] { Trainer<Tied>(turned, Adam(single), [&](const Tied& m, const Batch& b) { return loss(m, b); }); });
  refused("[pack]", [&] { pack(turned); });
  freeze(turned, "out");
  refused("[pack]", [&] { pack(turned); });
  freeze(turned);
  pack(turned);
}

TEST_P(OnEveryDevice, SharedParameterStaysF32IfOneOfItsPathsIsKept) {
  const Array weight = random_normal({6, 6}, 3, 0, 0.4).eval(), bias = Array::zeros({6}).eval();
  const Batch data{test::data(16)};
  Tied tied{weight, bias, {}};
  tied.out = tied.in;
  tied = setup(tied);
  const Single single = setup(Single{weight, bias});
  const auto loss = [](const auto& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  const auto trained = [&]<class M>(const M& model, const std::string& kept) {
    Trainer<M> trainer(model, Adam(model, {.lr = 0.1}), [&](const M& m, const Batch& b) { return loss(m, b); },
                       {.precision = {.dtype = DType::bf16, .keep = {kept}}});
    for (int i = 0; i < 5; ++i) trainer.step(data);
    return trainer.trained();
  };
  const Single want = trained(single, "in");
  for (const char* kept : {"in", "out"}) {
    SCOPED_TRACE(kept);
    MixedPrecision precision(tied, {.dtype = DType::bf16, .keep = {kept}});
    const auto [value, by] = precision.value_and_grad([&](const Tied& m) {
      EXPECT_EQ(m.in.dtype(), DType::f32);
      EXPECT_EQ(m.out.dtype(), DType::f32);
      EXPECT_EQ(m.bias.dtype(), DType::bf16);
      return loss(m, data);
    })(tied);
    EXPECT_TRUE(by.out.empty());
    const Tied got = trained(tied, kept);
    EXPECT_EQ(got.in.to_vector<float>(), want.in.to_vector<float>());
    EXPECT_EQ(got.out.view().storage, got.in.view().storage);
  }
}

}  // namespace
}  // namespace tessera
