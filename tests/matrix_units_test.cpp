// SPDX-License-Identifier: Apache-2.0
// Products of fragments by matrix units, without one: the emitted text runs lane by lane on this machine, and each
// instruction does to the lanes' registers what its maker documents. So which lane loads, multiplies and stores which
// element is shown; that the documents are right, and that the hardware's sums are as good, only hardware shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tessera/base/half.h"
#include "tessera/emit/c_emitter.h"
#include "tests/support/emit_zoo.h"
#include "tests/support/lanes.h"

namespace tessera {
namespace {

using namespace ir;
using emit::MatrixUnits;
using test::LaneRegisters;

// The instructions, from their documents. An element is half `h` (0 low, 1 high) of word `w` of lane `l`, or float `i`.

float value_of(DType t, std::uint32_t word, unsigned h) {
  const auto bits = static_cast<std::uint16_t>(word >> (16 * h));
  if (t == DType::f16) {
    half x;
    x.bits = bits;
    return static_cast<float>(x);
  }
  bfloat16 x;
  x.bits = bits;
  return static_cast<float>(x);
}

struct Matrix {
  Matrix(unsigned rows, unsigned columns) : columns(columns), element(rows * columns, NAN) {}
  float& operator()(unsigned i, unsigned j) { return element.at(i * columns + j); }
  /// What two lanes hold must be the same.
  void set(unsigned i, unsigned j, float v) {
    float& e = (*this)(i, j);
    EXPECT_TRUE(std::isnan(e) || e == v) << "element " << i << ", " << j << " is held twice, differently";
    e = v;
  }
  unsigned columns;
  std::vector<float> element;
};

/// Where lane l has element (half h of word w, or float i).
using Where = std::function<std::pair<unsigned, unsigned>(unsigned lane, unsigned element)>;
struct Layout {
  DType t;
  unsigned m, n, k, lanes;
  unsigned a_elements, b_elements, c_elements;  // of a lane
  Where a, b, c;
};

// PTX ISA 8.5, 9.7.14.5.8 and 9.7.14.5.7: figures and formulae of the fragments of m16n8k16 and m16n8k8.
Layout m16n8k16(DType t) {
  return {t,
          16,
          8,
          16,
          32,
          8,
          4,
          4,
          [](unsigned l, unsigned i) {
            const unsigned group = l >> 2, in_group = l % 4;
            const unsigned row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            return std::pair{row, i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
          },
          [](unsigned l, unsigned i) {
            const unsigned in_group = l % 4;
            return std::pair{i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, l >> 2};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          }};
}
Layout m16n8k8(DType t) {
  return {t,
          16,
          8,
          8,
          32,
          4,
          2,
          4,
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          },
          [](unsigned l, unsigned i) {
            return std::pair{(l % 4) * 2 + i, l >> 2};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          }};
}
// AMD's Matrix Instruction Calculator, `--register-layout` of each: A[i][k] is in lane i + 16 (k / per), element k %
// per; B[k][j] in lane j + 16 (k / per); D[i][j] in lane j + 16 (i / 4), float i % 4.
Layout mfma(DType t, unsigned k) {
  const unsigned per = k / 4;
  return {t,
          16,
          16,
          k,
          64,
          per,
          per,
          4,
          [=](unsigned l, unsigned e) {
            return std::pair{l % 16, per * (l / 16) + e};
          },
          [=](unsigned l, unsigned e) {
            return std::pair{per * (l / 16) + e, l % 16};
          },
          [](unsigned l, unsigned e) {
            return std::pair{4 * (l / 16) + e, l % 16};
          }};
}
// RDNA3 ISA, 7.9, and "How to accelerate AI applications on RDNA 3 using WMMA" (GPUOpen): lane l and lane l + 16 have
// row l of A, and column l of B; D[i][j] is in lane j + 16 (i % 2), float i / 2.
Layout wmma(DType t) {
  return {t,
          16,
          16,
          16,
          32,
          16,
          16,
          8,
          [](unsigned l, unsigned e) {
            return std::pair{l % 16, e};
          },
          [](unsigned l, unsigned e) {
            return std::pair{e, l % 16};
          },
          [](unsigned l, unsigned e) {
            return std::pair{2 * e + l / 16, l % 16};
          }};
}

void multiply(const Layout& u, std::vector<LaneRegisters*>& lanes) {
  ASSERT_EQ(lanes.size(), u.lanes);
  Matrix a(u.m, u.k), b(u.k, u.n);
  for (unsigned l = 0; l < u.lanes; ++l) {
    for (unsigned e = 0; e < u.a_elements; ++e) {
      const auto [i, j] = u.a(l, e);
      a.set(i, j, value_of(u.t, lanes[l]->a[e / 2], e % 2));
    }
    for (unsigned e = 0; e < u.b_elements; ++e) {
      const auto [i, j] = u.b(l, e);
      b.set(i, j, value_of(u.t, lanes[l]->b[e / 2], e % 2));
    }
  }
  for (unsigned l = 0; l < u.lanes; ++l)
    for (unsigned e = 0; e < u.c_elements; ++e) {
      const auto [i, j] = u.c(l, e);
      for (unsigned p = 0; p < u.k; ++p) lanes[l]->c[e] += a(i, p) * b(p, j);
    }
}

// PTX ISA 8.5, 9.7.14.5.15: with .x4, lanes 8m to 8m + 7 give the rows of matrix m; row r of it, of 8 elements, goes to
// lanes 4r to 4r + 3, two elements each; with .trans its columns do.
void ldmatrix(std::vector<LaneRegisters*>& lanes, bool transposed) {
  for (unsigned m = 0; m < 4; ++m)
    for (unsigned l = 0; l < 32; ++l) {
      std::uint32_t word = 0;
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned along = 2 * (l % 4) + h, across = l / 4;
        const std::uint16_t* row = lanes[8 * m + (transposed ? along : across)]->row;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row) % 16, 0u) << "rows are of 16 aligned bytes";
        word |= std::uint32_t{row[transposed ? across : along]} << (16 * h);
      }
      lanes[l]->a[m] = word;
    }
}

std::array<unsigned, 10> executed;  // by instruction

void step(int instruction, std::vector<LaneRegisters*>& lanes) {
  ++executed.at(static_cast<std::size_t>(instruction));
  switch (instruction) {
    case test::m16n8k16_f16: return multiply(m16n8k16(DType::f16), lanes);
    case test::m16n8k16_bf16: return multiply(m16n8k16(DType::bf16), lanes);
    case test::m16n8k8_f16: return multiply(m16n8k8(DType::f16), lanes);
    case test::ldmatrix: return ldmatrix(lanes, false);
    case test::ldmatrix_trans: return ldmatrix(lanes, true);
    case test::mfma_16x16x16_f16: return multiply(mfma(DType::f16, 16), lanes);
    case test::mfma_16x16x16_bf16: return multiply(mfma(DType::bf16, 16), lanes);
    case test::mfma_16x16x8_bf16: return multiply(mfma(DType::bf16, 8), lanes);
    case test::wmma_f16: return multiply(wmma(DType::f16), lanes);
    default: return multiply(wmma(DType::bf16), lanes);
  }
}

// A product of two tiles along k, by two subgroups, each of which has its columns of c.

struct Case {
  DType t;
  bool left_transposed, right_transposed, sums_transposed, shared, index64;
  std::int64_t begin, stride;
};
std::string text_of(const Case& c) {
  return std::string(dtype_name(c.t)) + (c.left_transposed ? ", left transposed" : "") +
         (c.right_transposed ? ", right transposed" : "") + (c.sums_transposed ? ", sums transposed" : "") +
         (c.shared ? ", shared" : "") + (c.index64 ? ", wide" : "") + ", from " + std::to_string(c.begin) + " by " +
         std::to_string(c.stride);
}
constexpr std::int64_t room = 3000, depth = 32;

Function product_of(const Case& c, std::uint32_t threads) {
  return test::zoo::block_kernel("units", {threads, 1, 1}, [&] {
    BufferRef a = buffer_param("a", c.t, Access::read), b = buffer_param("b", c.t, Access::read);
    BufferRef start = buffer_param("start", DType::f32, Access::read);
    const BufferRef out = buffer_param("out", DType::f32, Access::read_write);
    if (c.shared) {
      const BufferRef as = shared(c.t, room), bs = shared(c.t, room), cs = shared(DType::f32, room);
      for_(thread_id(), room, static_cast<std::int64_t>(threads),
           [&](Value e) { as.store(e, a.load(e)), bs.store(e, b.load(e)), cs.store(e, start.load(e)); });
      barrier();
      a = as, b = bs, start = cs;
    }
    const Value column = subgroup_id() * 16;
    const Fragment left(FragmentRole::left, c.t), right(FragmentRole::right, c.t),
        sum(FragmentRole::accumulator, DType::f32);
    if (c.sums_transposed)
      sum.load_transposed(start, column * c.stride + c.begin, c.stride);
    else
      sum.load(start, column + c.begin, c.stride);
    for_(0, depth, 16, [&](Value k) {
      if (c.left_transposed)
        left.load_transposed(a, k * c.stride + c.begin, c.stride);
      else
        left.load(a, k + c.begin, c.stride);
      if (c.right_transposed)
        right.load_transposed(b, column * c.stride + k + c.begin, c.stride);
      else
        right.load(b, k * c.stride + column + c.begin, c.stride);
      sum.multiply_add(left, right);
    });
    sum.store(out, column + c.begin, c.stride);
  });
}

template <class T>
std::vector<T> rounded(const std::vector<float>& from) {
  std::vector<T> out;
  for (float f : from) out.push_back(T(f));
  return out;
}

template <class T>
void compare(const test::CompiledText& text, const std::string& entry, unsigned width, const Case& c,
             std::mt19937& random) {
  SCOPED_TRACE(text_of(c));
  std::uniform_real_distribution<float> any(-2, 2);
  auto numbers = [&] {
    std::vector<float> v(room);
    for (float& f : v) f = any(random);
    return v;
  };
  // Allocations of GPUs are aligned to more than the 16 bytes that the fast paths ask for.
  struct alignas(64) Memory {
    T a[room], b[room];
  };
  const auto memory = std::make_unique<Memory>();
  const std::vector<T> a = rounded<T>(numbers()), b = rounded<T>(numbers());
  std::ranges::copy(a, memory->a), std::ranges::copy(b, memory->b);
  const std::vector<float> start = numbers();
  std::vector<float> out(room, 77.0f), begun = start;
  test::Lanes lanes(2 * width, width, step);
  lanes.run([&] { text.run(entry, {memory->a, memory->b, begun.data(), out.data()}); });

  std::vector<char> written(room);
  for (std::int64_t i = 0; i < 16; ++i)
    for (std::int64_t j = 0; j < 32; ++j) {
      auto at = [&](bool across, std::int64_t row, std::int64_t column) {
        return static_cast<std::size_t>(c.begin + (across ? column * c.stride + row : row * c.stride + column));
      };
      double sum = start[at(c.sums_transposed, i, j)], absolute = std::fabs(sum);
      for (std::int64_t k = 0; k < depth; ++k) {
        const double x = static_cast<float>(a[at(c.left_transposed, i, k)]),
                     y = static_cast<float>(b[at(c.right_transposed, k, j)]);
        sum += x * y, absolute += std::fabs(x * y);
      }
      const std::size_t place = at(false, i, j);
      written[place] = 1;
      ASSERT_NEAR(out[place], sum, 2 * (depth + 1) * 0x1p-24 * absolute) << i << ", " << j;
    }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!written[i]) {
      ASSERT_EQ(out[i], 77.0f) << "written beside the matrix, at " << i;
    }
}

struct Unit {
  const char* name;
  emit::Dialect dialect;
  unsigned width;
  bool bf16;
};
std::vector<Unit> units() {
  return {{"sm_75", emit::cuda_c_for(75), 32, false},
          {"sm_80", emit::cuda_c_for(80), 32, true},
          {"gfx908", emit::hip_c_for("gfx908"), 64, true},
          {"gfx90a", emit::hip_c_for("gfx90a:sramecc+:xnack-"), 64, true},
          {"gfx1100", emit::hip_c_for("gfx1100"), 32, true}};
}

class MatrixUnitsRun : public ::testing::TestWithParam<std::size_t> {};

TEST_P(MatrixUnitsRun, EveryLaneLoadsMultipliesAndStoresWhatItsInstructionSays) {
  if (std::system("clang++-16 --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "passed by: clang-16 is not installed (script/bootstrap)";
  const Unit unit = units()[GetParam()];
  const char* named = std::getenv("TESSERA_TEST_SEED");
  const unsigned seed = named ? static_cast<unsigned>(std::strtoul(named, nullptr, 0)) : std::random_device{}();
  std::printf("TESSERA_TEST_SEED=%u\n", seed);
  std::mt19937 random(seed);
  executed = {};
  // Transposed or not, in rows of 16 aligned bytes, of 4, and of an odd number of elements; from an odd one.
  const std::vector<std::pair<std::int64_t, std::int64_t>> places = {{0, 40}, {8, 48}, {2, 38}, {0, 33}, {5, 40}};
  std::vector<Case> cases;
  for (const DType t : {DType::f16, DType::bf16}) {
    if (t == DType::bf16 && !unit.bf16) continue;
    for (const bool shared : {false, true})
      for (const auto& [begin, stride] : places)
        for (const bool transposed : {false, true}) {
          const std::size_t turn = cases.size() + 1;
          cases.push_back(
              {t, transposed, transposed != (turn / 2 % 2 == 0), turn % 4 < 2, shared, turn % 3 == 0, begin, stride});
        }
  }
  std::vector<Function> lowered;
  lowered.reserve(cases.size());
  std::vector<emit::EmitRequest> requests;
  for (const Case& c : cases) {
    const Function fn = product_of(c, 2 * unit.width);
    emit::Target target = emit::target_of(unit.dialect, c.index64);
    target.max_shared_bytes = 64 << 10;
    ASSERT_TRUE(emit::keeps_fragments(fn, target));
    lowered.push_back(emit::lower(fn, target));
    requests.push_back({&lowered.back(), true});
  }
  const emit::EmittedSource source = emit::emit_c(requests, unit.dialect);
  std::vector<std::string> entries;
  for (const emit::EmittedKernel& kernel : source.kernels) {
    ASSERT_EQ(kernel.arguments.size(), 4u) << kernel.text;
    entries.push_back(kernel.entry);
  }
  const test::CompiledText text(source.text, unit.width, entries, 4);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].t == DType::f16)
      compare<half>(text, entries[i], unit.width, cases[i], random);
    else
      compare<bfloat16>(text, entries[i], unit.width, cases[i], random);
    if (HasFatalFailure()) return;
  }
  const auto ran = [&](int i) { return executed[static_cast<std::size_t>(i)] > 0; };
  const bool nvidia = unit.dialect.language == emit::Language::cuda;
  EXPECT_EQ(ran(test::ldmatrix), nvidia);
  EXPECT_EQ(ran(test::ldmatrix_trans), nvidia);
  const MatrixUnits m = unit.dialect.matrix;
  EXPECT_EQ(ran(test::m16n8k8_f16), m == MatrixUnits::mma_k8);
  EXPECT_EQ(ran(test::m16n8k16_f16) && ran(test::m16n8k16_bf16), m == MatrixUnits::mma_k16);
  EXPECT_EQ(ran(test::mfma_16x16x16_f16), m == MatrixUnits::mfma || m == MatrixUnits::mfma_1k);
  EXPECT_EQ(ran(test::mfma_16x16x8_bf16), m == MatrixUnits::mfma);
  EXPECT_EQ(ran(test::mfma_16x16x16_bf16), m == MatrixUnits::mfma_1k);
  EXPECT_EQ(ran(test::wmma_f16) && ran(test::wmma_bf16), m == MatrixUnits::wmma);
}
INSTANTIATE_TEST_SUITE_P(All, MatrixUnitsRun, ::testing::Range(std::size_t{0}, std::size_t{5}),
                         [](const auto& info) { return std::string(units()[info.param].name); });

TEST(MatrixUnits, AreTakenWhereTheyAreAndBlocksAreWholeSubgroups) {
  const auto keeps = [](const emit::Dialect& d, DType t, std::uint32_t threads) {
    return emit::keeps_fragments(product_of({t, false, false, false, false, false, 0, 40}, threads),
                                 emit::target_of(d, false));
  };
  EXPECT_FALSE(keeps(emit::cuda_c_for(70), DType::f16, 64));
  EXPECT_TRUE(keeps(emit::cuda_c_for(75), DType::f16, 64));
  EXPECT_FALSE(keeps(emit::cuda_c_for(75), DType::bf16, 64));
  EXPECT_TRUE(keeps(emit::cuda_c_for(86), DType::bf16, 96));
  EXPECT_FALSE(keeps(emit::cuda_c_for(90), DType::f16, 80)) << "its last subgroup is not full";
  EXPECT_TRUE(keeps(emit::hip_c_for("gfx908"), DType::bf16, 64));
  EXPECT_FALSE(keeps(emit::hip_c_for("gfx90a"), DType::f16, 96)) << "waves of 64";
  EXPECT_TRUE(keeps(emit::hip_c_for("gfx1101"), DType::f16, 96));
  for (const char* none : {"gfx906", "gfx1030", "gfx1200", ""})
    EXPECT_FALSE(keeps(emit::hip_c_for(none), DType::f16, 64)) << none;
  for (const emit::Dialect& d : {emit::opencl_c(), emit::opencl_c_intel(), emit::cuda_c(), emit::hip_c()})
    EXPECT_FALSE(keeps(d, DType::f16, 64)) << d.name;
}

}  // namespace
}  // namespace tessera
