// SPDX-License-Identifier: Apache-2.0
// Compares the computed overlap of parts of storages with sets of bytes.
#include "tessera/task/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tessera/base/test_seed.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

struct View {
  Shape shape;
  Strides strides;
  std::int64_t offset = 0;
  MatrixPart triangle = MatrixPart::none;
};

std::set<std::int64_t> elements(const View& v) {
  std::set<std::int64_t> out;
  if (element_count(v.shape) == 0) return out;
  Shape index(v.shape.size(), 0);
  for (;;) {
    const std::int64_t rank = static_cast<std::int64_t>(v.shape.size());
    const std::int64_t off = rank < 2 ? 0 : index[rank - 1] - index[rank - 2];
    const bool in =
        v.triangle == MatrixPart::none || (v.triangle == MatrixPart::upper && off >= 0) ||
        (v.triangle == MatrixPart::unit_upper && off > 0) || (v.triangle == MatrixPart::lower && off <= 0) ||
        (v.triangle == MatrixPart::unit_lower && off < 0) || (v.triangle == MatrixPart::diagonal && off == 0);
    std::int64_t at = v.offset;
    for (std::int64_t d = 0; d < rank; ++d) at += index[d] * v.strides[d];
    if (in) out.insert(at);
    std::int64_t d = rank - 1;
    for (; d >= 0 && ++index[d] == v.shape[d]; --d) index[d] = 0;
    if (d < 0) return out;
  }
}

StoragePart part(const View& v) { return part_of(v.shape, v.strides, v.offset, 4, v.triangle); }

bool meet(const std::set<std::int64_t>& a, const std::set<std::int64_t>& b) {
  return std::ranges::any_of(a, [&](std::int64_t e) { return b.contains(e); });
}

constexpr MatrixPart triangles[] = {MatrixPart::none,       MatrixPart::upper,      MatrixPart::lower,
                                    MatrixPart::unit_upper, MatrixPart::unit_lower, MatrixPart::diagonal};

TEST(Parts, TrianglesAndDiagonalsOverlapIfTheyShareElements) {
  for (const MatrixPart a : triangles)
    for (const MatrixPart b : triangles) {
      const View x{{5, 5}, {5, 1}, 0, a}, y{{5, 5}, {5, 1}, 0, b}, turned{{5, 5}, {1, 5}, 0, b};
      EXPECT_EQ(overlap(part(x), part(y)), meet(elements(x), elements(y))) << to_string(a) << ", " << to_string(b);
      EXPECT_EQ(overlap(part(x), part(turned)), meet(elements(x), elements(turned)))
          << to_string(a) << ", transposed " << to_string(b);
    }
}

TEST(Parts, QuadrantsAreDisjointAndMiddleOverlapsAll) {
  const auto box = [](std::int64_t r, std::int64_t c, std::int64_t n) { return part({{n, n}, {8, 1}, r * 8 + c}); };
  const StoragePart quadrants[] = {box(0, 0, 4), box(0, 4, 4), box(4, 0, 4), box(4, 4, 4)};
  for (const StoragePart& a : quadrants) {
    for (const StoragePart& b : quadrants) EXPECT_EQ(overlap(a, b), &a == &b);
    EXPECT_TRUE(overlap(box(2, 2, 4), a));
    EXPECT_TRUE(overlap(a, full_part(256)));
    EXPECT_TRUE(contains(full_part(256), a));
    EXPECT_FALSE(contains(a, box(2, 2, 4)));
    EXPECT_FALSE(overlap(a, full_part(0)));
  }
}

/// Creates random views of one buffer by slicing and permuting. `regular` is set to false if the overlap cannot always
/// be decided exactly.
View random_view(std::mt19937_64& random, bool& regular) {
  const auto up_to = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  const Shape of{up_to(3) + 2, up_to(4) + 3, up_to(5) + 3};
  View v{{}, {}, 0, MatrixPart::none};
  Strides strides = contiguous_strides({3, 6, 7});
  if (up_to(6) == 0) strides = contiguous_strides(of), regular = false;  // a different shape for the same bytes
  for (int d = 0; d < 3; ++d) {
    const std::int64_t size = std::min(of[d], Shape{3, 6, 7}[d]), from = up_to(size),
                       to = from + up_to(size - from + 1);
    const std::int64_t step = up_to(4) == 0 ? 2 : 1;
    if (step != 1) regular = false;
    v.offset += from * strides[d];
    if (up_to(3) == 0) continue;  // selects one index of this axis
    v.shape.push_back((to - from + step - 1) / step), v.strides.push_back(strides[d] * step);
  }
  if (v.shape.size() >= 2 && up_to(3) == 0) {
    std::swap(v.shape[0], v.shape[v.shape.size() - 1]), std::swap(v.strides[0], v.strides[v.shape.size() - 1]);
  }
  if (v.shape.size() >= 2 && up_to(2) == 0) v.triangle = triangles[up_to(6)];
  return v;
}

TEST(Parts, RandomViewsOverlapIfTheyShareElements) {
  std::mt19937_64 random(test_seed());
  int exact = 0, apart = 0, held = 0;
  for (int i = 0; i < 100000; ++i) {
    bool regular = true;
    const View a = random_view(random, regular), b = random_view(random, regular);
    const std::set<std::int64_t> x = elements(a), y = elements(b);
    const bool truth = meet(x, y), said = overlap(part(a), part(b));
    ASSERT_FALSE(truth && !said) << "program " << i << " of seed " << test_seed();
    ASSERT_EQ(said, overlap(part(b), part(a))) << i;
    const auto text = [](const View& v) {
      return to_string(v.shape) + " strides " + to_string(v.strides) + " from " + std::to_string(v.offset) + ", " +
             to_string(v.triangle);
    };
    const bool inside = std::ranges::includes(x, y);
    ASSERT_FALSE(contains(part(a), part(b)) && !inside)
        << text(a) << "; " << text(b) << "; number " << i << " of seed " << test_seed();
    held += contains(part(a), part(b)) && !y.empty();
    // Two bands of different axes may both overlap the box without overlapping each other.
    const bool two_bands = a.triangle != MatrixPart::none && b.triangle != MatrixPart::none && a.strides != b.strides;
    if (regular && !two_bands) {
      ASSERT_EQ(said, truth) << text(a) << "; " << text(b) << "; number " << i << " of seed " << test_seed();
      ++exact, apart += !said && !x.empty() && !y.empty();
    }
  }
  EXPECT_GT(exact, 5000);
  EXPECT_GT(apart, 500);
  EXPECT_GT(held, 100);
}

TEST(Parts, TriangleOfVectorThrows) {
  test::expect_throw<ShapeError>(
      [] {
        part({{3}, {1}, 0, MatrixPart::upper});
      },
      {"upper triangle", "(3,)", "two dimensions"});
}

}  // namespace
}  // namespace tessera
