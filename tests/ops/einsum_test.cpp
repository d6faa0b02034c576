// SPDX-License-Identifier: Apache-2.0
// einsum and its relatives, compared with a loop over all combinations of indices in double.
#include "tessera/ops/einsum.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// Computes einsum for subscripts with "->" and without "...", in double.
std::vector<double> reference(const std::string& subscripts, const std::vector<Array>& operands) {
  std::vector<std::string> parts(1);
  const std::size_t arrow = subscripts.find("->");
  for (const char c : subscripts.substr(0, arrow)) c == ',' ? void(parts.emplace_back()) : void(parts.back() += c);
  const std::string result = subscripts.substr(arrow + 2);
  std::map<char, std::int64_t> extents, at;
  std::vector<std::vector<float>> values;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    values.push_back(operands[k].astype(DType::f32).to_vector<float>());
    for (std::size_t d = 0; d < parts[k].size(); ++d)
      extents[parts[k][d]] = std::max(extents[parts[k][d]], operands[k].shape()[d]);
  }
  const auto position = [&](const std::string& labels, const Shape& shape) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < labels.size(); ++d) index = index * shape[d] + (shape[d] == 1 ? 0 : at[labels[d]]);
    return static_cast<std::size_t>(index);
  };
  Shape shape;
  for (const char c : result) shape.push_back(extents[c]);
  std::vector<double> out(static_cast<std::size_t>(element_count(shape)));
  std::int64_t all = 1;
  for (const auto& [label, extent] : extents) all *= extent;
  for (std::int64_t i = 0; i < all; ++i) {
    std::int64_t rest = i;
    for (const auto& [label, extent] : extents) at[label] = rest % extent, rest /= extent;
    double product = 1;
    for (std::size_t k = 0; k < parts.size(); ++k)
      product *= static_cast<double>(values[k][position(parts[k], operands[k].shape())]);
    out[position(result, shape)] += product;
  }
  return out;
}

TEST_P(OnEveryDevice, EinsumMatchesPlainLoops) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const char* subscripts :
       {"ij,jk->ik",    "ij,kj->ik",     "bij,bjk->bik",  "i,i->",        "i,j->ij",         "ij->ji",
        "ij->j",        "ij->",          "ii->i",         "ii->",         "iji->ij",         "ij,ij->i",
        "bij,bkj->bik", "ij,jk,kl->il",  "ij,ik,il->jkl", "abc,cd,bd->a", "bhqd,bhkd->bhqk", "a,b,c->cab",
        "ij,j->i",      "abij,cj->abic", "ab,ac,ad->a"}) {
    const DType dtype =
        std::array{DType::f32, DType::i32, DType::f16}[random() % 3];  // one each: a kernel takes long to compile
    std::map<char, std::int64_t> extents;
    std::vector<Array> operands;
    std::string part;
    for (const char c : std::string(subscripts).substr(0, std::string(subscripts).find("->")) + ",") {
      if (c != ',') {
        part += c;
        continue;
      }
      Shape shape;
      for (const char label : part)
        shape.push_back(
            extents.try_emplace(label, static_cast<std::int64_t>(random() % 4 + (random() % 8 != 0))).first->second);
      operands.push_back(rint(random_uniform(shape, random(), -4, 4)).astype(dtype));
      part.clear();
    }
    const std::vector<double> wanted = reference(subscripts, operands);
    const Array got = einsum(subscripts, operands);
    ASSERT_EQ(got.dtype(), dtype) << subscripts;
    const auto values = got.astype(DType::f32).to_vector<float>();
    ASSERT_EQ(values.size(), wanted.size()) << subscripts;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], wanted[i], dtype == DType::f16 ? 2e-3 * std::abs(wanted[i]) : 0) << subscripts << " " << i;
  }
}

TEST_P(OnEveryDevice, EinsumReadsTheSubscriptsAsNumPyDoes) {
  const Array a = Array::arange(6, 0, 1).reshape({2, 3}), b = Array::arange(12, 0, 1).reshape({3, 4});
  EXPECT_EQ(einsum("ij, jk", {a, b}).to_vector<float>(), matmul(a, b).to_vector<float>());
  EXPECT_EQ(einsum("ba", {a}).to_vector<float>(), a.transpose().to_vector<float>());
  const Array batches = Array::arange(24, 0, 1).reshape({2, 1, 3, 4}),
              rows = Array::arange(40, 0, 1).reshape({5, 4, 2});
  EXPECT_EQ(einsum("...ij,...jk->...ik", {batches, rows}).to_vector<float>(), matmul(batches, rows).to_vector<float>());
  EXPECT_EQ(einsum("...ij,...jk", {batches, rows}).shape(), (Shape{2, 5, 3, 2}));
  EXPECT_EQ(einsum("...->...", {batches}).shape(), batches.shape());
  EXPECT_EQ(einsum("i...->...", {batches}).shape(), (Shape{1, 3, 4}));
  EXPECT_EQ(einsum("ij,jk->ik", {a > 2, b > 3}).to_vector<bool>(),
            (matmul((a > 2).astype(DType::i32), (b > 3).astype(DType::i32)) > 0).to_vector<bool>());
  EXPECT_EQ(einsum("ij,jk->ik", {Array::ones({2, 0}), Array::ones({0, 3})}).to_vector<float>(),
            std::vector<float>(6, 0));
  // All operands are converted to the promoted dtype first.
  EXPECT_EQ(einsum("i,j->j", {Array::ones({300}, DType::u8), Array::ones({2})}).to_vector<float>(),
            (std::vector<float>{300, 300}));
  EXPECT_EQ(einsum("i,i,i->i", {Array::from({std::int8_t{100}}), Array::from({std::int8_t{100}}), Array::ones({1})})
                .item<float>(),
            10000);
  EXPECT_EQ(einsum("i,i->i", {a.select(0, 0) > 0, a.select(0, 0) > 1}).to_vector<bool>(),
            (std::vector<bool>{false, false, true}));
  expect_throw<Error>([&] { einsum("...i->i", {a}); }, {"the result has no ..."});
  expect_throw<Error>([&] { einsum("ij,jk->ik", {a}); }, {"name 2 operands, but there are 1"});
  expect_throw<Error>([&] { einsum("ijk->i", {a}); }, {"has 2 axes", "names 3"});
  expect_throw<Error>([&] { einsum("ij->k", {a}); }, {"no operand has the axis 'k'"});
  expect_throw<Error>([&] { einsum("ij->ii", {a}); }, {"'i' twice"});
  expect_throw<Error>([&] { einsum("i1->i", {a}); }, {"'1' is not a letter"});
  expect_throw<Error>([&] { einsum("i...j...->i", {a}); }, {"einsum"});
  expect_throw<Error>([&] { einsum("ij,jk->ik", {a, a}); }, {"different extents", "3 and 2"});
  expect_throw<Error>([&] { einsum("ii->i", {a}); }, {"different extents"});
  expect_throw<Error>([] { einsum("", {}); }, {"name 1 operands, but there are 0"});
}

TEST_P(OnEveryDevice, TensordotKronAndOuterMatchNumPy) {
  const Array a = Array::arange(24, 0, 1).reshape({2, 3, 4}), b = Array::arange(12, 0, 1).reshape({3, 4});
  EXPECT_EQ(tensordot(a, b).to_vector<float>(), (std::vector<float>{506, 1298}));
  EXPECT_EQ(tensordot(a, b, 0).shape(), (Shape{2, 3, 4, 3, 4}));
  EXPECT_EQ(tensordot(a, b, {1}, {0}).to_vector<float>(), einsum("ijk,jl->ikl", {a, b}).to_vector<float>());
  expect_throw<Error>([&] { tensordot(a, b, 3); }, {"number of axes"});
  expect_throw<Error>([&] { tensordot(a, b, {0}, {0}); }, {"the extents of axis 0 and axis 0 differ"});
  expect_throw<Error>([&] { tensordot(a, b, {1, 1}, {0, 0}); }, {"occurs twice"});
  expect_throw<Error>([&] { tensordot(a, b, {1}, {}); }, {"the numbers of axes differ"});
  EXPECT_EQ(kron(Array::from({1.f, 2.f}), Array::from({1.f, 10.f, 100.f})).to_vector<float>(),
            (std::vector<float>{1, 10, 100, 2, 20, 200}));
  const Array square = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2});
  EXPECT_EQ(kron(square, Array::from({1.f, 0.f})).to_vector<float>(), (std::vector<float>{1, 0, 2, 0, 3, 0, 4, 0}));
  EXPECT_EQ(outer(square, Array::from({1.f, -1.f})).to_vector<float>(),
            (std::vector<float>{1, -1, 2, -2, 3, -3, 4, -4}));
}

TEST_P(OnEveryDevice, GradientOfEinsumIsThatOfMatmul) {
  const Array a = random_normal({3, 4}, 1), b = random_normal({4, 2}, 2), w = random_normal({3, 2}, 3);
  const auto by_einsum = grad(
      [&](const Array& x, const Array& y) {
        return einsum("ij,jk,ik->", {x, y, w});
      },
      wrt<0, 1>)(a, b);
  const auto by_matmul = grad([&](const Array& x, const Array& y) { return sum(matmul(x, y) * w); }, wrt<0, 1>)(a, b);
  const auto near = [](const Array& x, const Array& y) { EXPECT_LE(max(abs(x - y)).item<float>(), 1e-5f); };
  near(std::get<0>(by_einsum), std::get<0>(by_matmul)), near(std::get<1>(by_einsum), std::get<1>(by_matmul));
}

}  // namespace
}  // namespace tessera
