// SPDX-License-Identifier: Apache-2.0
// Strided accesses, and loops that lanes run one after another, on all targets. Compares the results with the
// interpreter. Protected pages around the buffers detect accesses out of bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "tests/cpu/cpu_compare.h"

#include "tessera/device/driver.h"

namespace tessera::testing {
namespace {

using namespace ir;
using test::in;
using test::out;

constexpr DType every_dtype[] = {DType::boolean, DType::u8,  DType::i8,  DType::u16, DType::i16,
                                 DType::u32,     DType::i32, DType::u64, DType::i64, DType::f16,
                                 DType::bf16,    DType::f32, DType::f64};

// Memory that starts directly after a protected page or ends directly before one.
class Fenced {
 public:
  Fenced(std::size_t bytes, bool at_end) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    inside_ = (bytes + page - 1) / page * page;
    all_ = inside_ + 2 * page;
    void* p = ::mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(p);
    ::mprotect(base_ + page, inside_, PROT_READ | PROT_WRITE);
    data_ = base_ + page + (at_end ? inside_ - bytes : 0);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { ::munmap(base_, all_); }
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte *base_, *data_;
  std::size_t bytes_, inside_, all_;
};

// Fills memory with bit patterns that no conversion changes.
void fill(std::byte* data, std::size_t elements, DType t, unsigned seed) {
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t bits = t == DType::boolean ? (i + seed) % 3 % 2 : ((i * 7 + seed * 31 + 1) & 0x3fff);
    std::memcpy(data + i * dtype_size(t), &bits, dtype_size(t));
  }
}

struct Case {
  DType t;
  int stride, members;  // the kernel accesses the first `members` elements of each step
  std::uint64_t threads;
  int first, last;  // the threads that access memory; all threads if last is 0
  bool at_end;
};

// Checks y[k][i] = x[i * stride + k] for loads, and the reverse assignment for stores. The buffer starts with the first
// accessed element and ends with the last one.
void check(Cpu& cpu, LoadedKernel& kernel, const Case& c, bool loads) {
  const std::size_t size = dtype_size(c.t), n = c.threads, members = static_cast<std::size_t>(c.members);
  const auto step = static_cast<std::size_t>(std::abs(c.stride));
  const std::size_t from = c.last ? static_cast<std::size_t>(c.first) : 0,
                    to = c.last ? static_cast<std::size_t>(c.last) : n;
  // Steps are numbered from the start of the buffer. With a negative stride, thread 0 accesses the last step.
  const std::size_t low = c.stride > 0 ? from : n - to, high = c.stride > 0 ? to : n - from;
  const std::size_t elements = (high - low - 1) * step + members;
  Fenced strided(elements * size, c.at_end), plain(n * members * size, c.at_end);
  fill(strided.data(), elements, c.t, 1), fill(plain.data(), n * members, c.t, 2);
  std::vector<std::byte> expected_strided(strided.data(), strided.data() + strided.size());
  std::vector<std::byte> expected_plain(plain.data(), plain.data() + plain.size());
  for (std::size_t i = from; i < to; ++i)
    for (std::size_t k = 0; k < members; ++k) {
      const std::size_t at = ((c.stride > 0 ? i : n - 1 - i) - low) * step + k;
      if (loads)
        std::memcpy(expected_plain.data() + (k * n + i) * size, strided.data() + at * size, size);
      else
        std::memcpy(expected_strided.data() + at * size, plain.data() + (k * n + i) * size, size);
    }
  cpu.call()
      .at(strided.data() - low * step * size, strided.size() + low * step * size, (n - 1) * step + members)
      .at(plain.data(), plain.size(), n * members)
      .index(c.first)
      .index(c.last)
      .run(kernel, {n, 1, 1});
  const bool same = std::memcmp(expected_plain.data(), plain.data(), plain.size()) == 0 &&
                    std::memcmp(expected_strided.data(), strided.data(), strided.size()) == 0;
  EXPECT_TRUE(same) << cpu.target() << ": " << dtype_name(c.t) << (loads ? " loads" : " stores") << ", stride "
                    << c.stride << ", members " << c.members << ", threads " << n << ", " << c.first << " to " << c.last
                    << (c.at_end ? ", at the end" : ", at the front");
}

Function stepping(const Case& c, bool loads) {
  return map_kernel("stepping", [&] {
    const BufferRef x = loads ? in("x", c.t) : out("x", c.t), y = loads ? out("y", c.t) : in("y", c.t);
    const Value first = scalar_param("first", DType::index), last = scalar_param("last", DType::index);
    const Value i = global_id();
    const Value step = c.stride > 0 ? i * c.stride : (extent() - 1 - i) * -c.stride;
    auto body = [&] {
      for (int k = 0; k < c.members; ++k) {
        const Value flat = i + extent() * k;
        if (loads)
          y.store(flat, x.load(step + k));
        else
          x.store(step + k, y.load(flat));
      }
    };
    if (c.last == 0)
      body();
    else
      if_(i >= first && i < last, body);
  });
}

void check(Cpu& cpu, Case c, bool loads) {
  const auto kernel = cpu.compile(stepping(c, loads));
  for (const std::uint64_t threads : {16, 37, 5}) {
    c.threads = threads;
    if (c.last) c.first = 3, c.last = threads == 37 ? 30 : 4;
    for (const bool at_end : {false, true}) {
      c.at_end = at_end;
      check(cpu, *kernel, c, loads);
    }
  }
}

TEST(CpuStrided, AccessesWithConstantStridesStayInBounds) {
  const bool all =
      std::getenv("TESSERA_TEST_LONG") != nullptr;  // otherwise each stride is tested with or without a mask
  for (Cpu* cpu : cpu_targets())
    for (const bool loads : {true, false}) {
      // Tests all strides with one dtype of each size, and all dtypes with two strides.
      constexpr DType sizes[] = {DType::f32, DType::u8, DType::f64, DType::u16};
      std::size_t turn = 0;
      for (const int stride : {-8, -3, -2, -1, 2, 3, 4, 5, 6, 7, 8, 20})
        for (const int masked : {0, 1}) {
          const std::size_t number = turn++;
          if (!all && (number % 4 == 1 || number % 4 == 2)) continue;
          const int members = number / 4 % 2 == 0 ? 1 : std::min(std::abs(stride), 8);
          check(*cpu, {sizes[number / 3 % 4], stride, members, 0, 0, masked, false}, loads);
        }
      for (const DType t : every_dtype) {
        check(*cpu, {t, 3, 2, 0, 0, 0, false}, loads);
        check(*cpu, {t, -4, 4, 0, 0, 1, false}, loads);
      }
    }
}

TEST(CpuStrided, AccessesWithRuntimeStridesStayInBounds) {
  for (Cpu* cpu : cpu_targets())
    for (const DType t : {DType::f32, DType::f64, DType::i16, DType::u8}) {
      const auto copy = cpu->compile(map_kernel("copy", [&] {
        const BufferRef x = in("x", t), y = out("y", t);
        const Value from = scalar_param("from", DType::index), to = scalar_param("to", DType::index);
        y.store(global_id() * to, x.load(global_id() * from));
      }));
      const std::size_t size = dtype_size(t);
      for (const std::size_t n : {1, 16, 50})
        for (const std::size_t from : {1, 2, 3, 4, 7})
          for (const std::size_t to : {1, 2, 3, 4, 5}) {
            Fenced x(((n - 1) * from + 1) * size, true), y(((n - 1) * to + 1) * size, true);
            fill(x.data(), x.size() / size, t, 3), fill(y.data(), y.size() / size, t, 4);
            std::vector<std::byte> expected(y.data(), y.data() + y.size());
            for (std::size_t i = 0; i < n; ++i) std::memcpy(&expected[i * to * size], x.data() + i * from * size, size);
            cpu->call()
                .at(x.data(), x.size(), x.size() / size)
                .at(y.data(), y.size(), y.size() / size)
                .index(static_cast<std::int64_t>(from))
                .index(static_cast<std::int64_t>(to))
                .run(*copy, {n, 1, 1});
            EXPECT_EQ(std::memcmp(expected.data(), y.data(), y.size()), 0)
                << cpu->target() << ", " << dtype_name(t) << ": " << from << " to " << to;
          }
    }
}

// In each round, every lane stores a few adjacent elements of its row. The row length is only known at launch.
TEST(CpuStrided, StoresToRowsStayInBounds) {
  for (Cpu* cpu : cpu_targets())
    for (const DType t : {DType::f32, DType::f64, DType::i64, DType::u16})
      for (const auto& [count, back] : {std::pair{2, false}, {4, false}, {4, true}, {5, false}, {8, false}}) {
        const Function rows = map_kernel("rows", [&, count = count, back = back] {
          const BufferRef x = in("x", t), y = out("y", t);
          const Value row = scalar_param("row", DType::index), rounds = scalar_param("rounds", DType::index);
          const Value i = global_id(), first = (back ? extent() - 1 - i : i) * row;
          for_(0, rounds, [&](Value round) {
            for (int k = 0; k < count; ++k) {
              const int at = count == 8 ? 7 - k : k;
              const Value element = x.load(i) + cast(t, round * 8 + at);
              // Loads an element that an earlier store has written.
              y.store(first + round * count + at,
                      count == 5 && k == 2 ? element + y.load(first + round * count) : element);
            }
          });
        });
        const auto kernel = cpu->compile(rows);
        const std::size_t size = dtype_size(t);
        for (const std::size_t n : {1, 16, 50})
          for (const std::size_t rounds : {1, 3})
            for (const std::size_t more : {0, 1, 7}) {
              const std::size_t row = rounds * static_cast<std::size_t>(count) + more;
              Fenced x(n * size, true), y(((n - 1) * row + row - more) * size, more % 2 == 0);
              fill(x.data(), n, t, 3), fill(y.data(), y.size() / size, t, 4);
              std::vector<std::byte> expected(y.data(), y.data() + y.size()), from(x.data(), x.data() + x.size());
              const ir::InterpreterArgument arguments[] = {{.data = from.data(), .elements = n},
                                                           {.data = expected.data(), .elements = y.size() / size},
                                                           {.bits = row},
                                                           {.bits = rounds}};
              ir::interpret(rows, {n, 1, 1}, arguments, {});
              cpu->call()
                  .at(x.data(), x.size(), n)
                  .at(y.data(), y.size(), y.size() / size)
                  .index(static_cast<std::int64_t>(row))
                  .index(static_cast<std::int64_t>(rounds))
                  .run(*kernel, {n, 1, 1});
              EXPECT_EQ(std::memcmp(expected.data(), y.data(), y.size()), 0)
                  << cpu->target() << ", " << dtype_name(t) << ": " << count << " in rows of " << row;
            }
      }
}

// Covers structs whose members are all computed in the same way, which needs no shuffles, and structs whose members are
// computed in different ways.
TEST(CpuStrided, StructUpdatesMatchInterpreter) {
  std::mt19937 random(test_seed());
  for (const DType t : {DType::f32, DType::i32, DType::f64, DType::u8})
    for (const int size : {2, 3, 4, 6}) {
      if (t != DType::f32 && size != 3) continue;
      for (const int form : {0, 1, 2}) {
        const Function f = map_kernel("in_place", [&] {
          const BufferRef x = in("x", t), y = out("y", t);
          const Value i = global_id();
          for (int k = 0; k < size; ++k) {
            const Value a = x.load(i * size + k), b = y.load(i * size + (form == 1 ? (k + 1) % size : k));
            const Value sum = form == 2 && k == 1 ? a - b : select(a > b, a * 2 + b, b - cast(t, 3));
            y.store(i * size + k,
                    form == 2 ? sum + cast(t, i) : sum * cast(t, literal(DType::i32, 1 + (form == 1 ? k : 0))));
          }
        });
        std::vector<std::byte> x(37 * static_cast<std::size_t>(size) * dtype_size(t)), y(x.size());
        for (auto* v : {&x, &y}) fill(v->data(), 37 * static_cast<std::size_t>(size), t, random() % 100);
        expect_same(f, {37, 1, 1}, {memory(t, x), memory(t, y)}, {1e-6, 1e-6});
      }
    }
}

// Applies the same functions and conversions to all members.
TEST(CpuStrided, StructConversionsMatchInterpreter) {
  std::mt19937 random(test_seed());
  for (const auto& [from, to] :
       {std::pair{DType::u8, DType::u8}, std::pair{DType::f32, DType::u8}, std::pair{DType::f32, DType::i32},
        std::pair{DType::i16, DType::f32}, std::pair{DType::f64, DType::i16}, std::pair{DType::f32, DType::f64}})
    for (const int size : {3, 4}) {
      const DType real = from == DType::f64 ? DType::f64 : DType::f32;
      const Function f = map_kernel("converted", [&, from = from, to = to] {
        const BufferRef x = in("x", from), y = out("y", to);
        const Value i = global_id();
        for (int k = 0; k < size; ++k) {
          const Value a = cast(real, x.load(i * size + k));
          y.store(i * size + k, cast(to, rint(min(sqrt(abs(a)) * 3 + fma(a, a, a), 1e5))));
        }
      });
      const std::size_t count = 37 * static_cast<std::size_t>(size);
      std::vector<std::byte> x(count * dtype_size(from)), y(count * dtype_size(to));
      fill(x.data(), count, from, random() % 100), fill(y.data(), count, to, random() % 100);
      expect_same(f, {37, 1, 1}, {memory(from, x), memory(to, y)}, {1e-6, 1e-6});
    }
}

// Threads load and store members of their own structs in random order, including in conditions and loops.
TEST(CpuStrided, RandomStructAccessesMatchInterpreter) {
  std::mt19937 random(test_seed());
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int program = 0; program < 12 && !::testing::Test::HasFailure(); ++program) {
    const int size = 2 + pick(7), sign = pick(4) == 0 ? -1 : 1, n = 21 + pick(40);
    const bool in_blocks = pick(3) == 0, noalias = pick(2) == 0;
    auto body = [&] {
      const BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
      const Value i = global_id(), own = sign > 0 ? i * size : (n - 1 - i) * size;
      std::vector<Value> values = {cast(DType::i32, i) * 7};
      auto any = [&] { return values[random() % values.size()]; };
      const std::function<void(int)> statements = [&](int depth) {
        const std::size_t before = values.size();
        for (int s = 0; s < 5; ++s) {
          const int kind = pick(depth > 0 ? 8 : 10);
          if (kind < 2)
            values.push_back(x.load(own + pick(size)));
          else if (kind == 2)
            values.push_back(y.load(own + pick(size)) + any());
          else if (kind == 3)
            values.push_back(x.load_if(any() > any(), own + pick(size), any()));
          else if (kind < 8)
            y.store(own + pick(size), any() * 3 + any());
          else if (kind == 8)
            if_(
                any() % 3 == 0, [&] { statements(depth + 1); }, [&] { statements(depth + 1); });
          else
            for_(literal(DType::i32, 0), any() & 3, [&](Value) { statements(depth + 1); });
        }
        values.resize(before);
      };
      auto all = [&] { statements(0), statements(0), statements(0); };
      if (in_blocks)
        if_(i < n, all);
      else
        all();
    };
    const Function f = in_blocks ? block_kernel("structs", {40, 1, 1}, body) : map_kernel("structs", body);
    std::vector<std::int32_t> x(static_cast<std::size_t>(n * size)), y(x.size());
    for (auto* v : {&x, &y})
      for (auto& e : *v) e = static_cast<std::int32_t>(random() % 1000);
    const auto extent = static_cast<std::uint64_t>(in_blocks ? (n + 39) / 40 : n);
    expect_same(f, {extent, 1, 1}, {memory(x), memory(y)}, {}, Variant{.noalias = noalias, .index64 = pick(2) == 0});
  }
}

// While one thread stores some members, another thread may store the other members.
TEST(CpuStrided, ConcurrentStoresToDifferentMembersDoNotInterfere) {
  for (Cpu* cpu : cpu_targets())
    for (const DType t : {DType::f32, DType::u8, DType::i64}) {
      const std::size_t n = 1000, rounds = 200;
      std::vector<std::byte> memory(n * 3 * dtype_size(t));
      auto writer = [&](int member) {
        const auto kernel = cpu->compile(map_kernel("member", [&] {
          const BufferRef x = out("x", t);
          const Value round = scalar_param("round", DType::index);
          x.store(global_id() * 3 + member, cast(t, round));
          if (member == 1) x.store(global_id() * 3 + 2, cast(t, round));
        }));
        const auto queue = cpu->device().make_queue();
        Allocation a = cpu->device().wrap(memory.data(), memory.size());
        for (std::size_t round = 1; round <= rounds; ++round) {
          const std::vector<Argument> arguments = {{.allocation = &a, .elements = n * 3}, {.bits = round}};
          queue->launch(*kernel, {n, 1, 1}, arguments);
        }
      };
      std::thread other(writer, 1);
      writer(0);
      other.join();
      const std::vector<std::byte> first(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(dtype_size(t)));
      for (std::size_t i = 0; i < n * 3; ++i)
        ASSERT_EQ(std::memcmp(&memory[i * dtype_size(t)], first.data(), dtype_size(t)), 0)
            << cpu->target() << ", " << dtype_name(t) << ": element " << i;
    }
}

// Each lane adds the elements of its row in order. Rows start `apart` elements apart, and the sum starts at element
// `shift` of the row. There is no memory after the last row.
TEST(CpuStrided, SumsOfRowsStayInBounds) {
  struct Rows {
    std::size_t rows, width, apart, shift;
  };
  for (Cpu* cpu : cpu_targets())
    for (const DType t : {DType::f32, DType::f64, DType::i32, DType::u64, DType::f16}) {
      const DType sums = t == DType::f16 ? DType::f32 : t;
      const auto kernel = cpu->compile(map_kernel("rows", [&] {
        const BufferRef x = in("x", t), y = out("y", sums), z = out("z", sums);
        const Value width = scalar_param("width", DType::index), apart = scalar_param("apart", DType::index);
        const Value shift = scalar_param("shift", DType::index);
        Variable sum(sums, literal(sums, 0)), back(sums, literal(sums, 0));
        for_(0, width, [&](Value j) {
          const Value v = cast(sums, x.load(global_id() * apart + shift + j));
          sum.set(sum.get() + v);
          back.set(v - cast(sums, x.load(global_id() * apart + shift + width - 1 - j)) - back.get());
        });
        y.store(global_id(), sum.get());
        z.store(global_id(), back.get());
      }));
      const std::size_t size = dtype_size(t), out_size = dtype_size(sums);
      for (const Rows& r : {Rows{16, 4, 4, 0},
                            {37, 5, 7, 1},
                            {16, 1, 1, 0},
                            {5, 9, 9, 0},
                            {33, 3, 5, 2},
                            {32, 0, 4, 1},
                            {16, 8, 8, 0},
                            {48, 31, 40, 3}})
        for (const bool at_end : {false, true}) {
          const std::size_t elements = (r.rows - 1) * r.apart + r.width + (r.width ? 0 : 1);
          Fenced x(elements * size, at_end), y(r.rows * out_size, at_end), z(r.rows * out_size, at_end);
          fill(x.data(), elements, t, 1), fill(y.data(), r.rows, sums, 2), fill(z.data(), r.rows, sums, 3);
          cpu->call()
              .at(x.data() - r.shift * size, x.size() + r.shift * size, elements + r.shift)
              .at(y.data(), y.size(), r.rows)
              .at(z.data(), z.size(), r.rows)
              .index(static_cast<std::int64_t>(r.width))
              .index(static_cast<std::int64_t>(r.apart))
              .index(static_cast<std::int64_t>(r.shift))
              .run(*kernel, {r.rows, 1, 1});
          std::vector<std::byte> expected(2 * r.rows * out_size);
          const auto add = [&]<class T>(T, auto&& element) {
            for (std::size_t i = 0; i < r.rows; ++i) {
              T sum = 0, back = 0;
              for (std::size_t j = 0; j < r.width; ++j) {
                const T v = element(i * r.apart + j), w = element(i * r.apart + r.width - 1 - j);
                sum = static_cast<T>(sum + v);
                back = static_cast<T>(static_cast<T>(v - w) - back);
              }
              std::memcpy(expected.data() + i * sizeof(T), &sum, sizeof(T));
              std::memcpy(expected.data() + (r.rows + i) * sizeof(T), &back, sizeof(T));
            }
          };
          const auto of = [&]<class T>(T) {
            return [&](std::size_t i) {
              T v;
              std::memcpy(&v, x.data() + i * sizeof(T), sizeof(T));
              return v;
            };
          };
          switch (t) {
            case DType::f32: add(float{}, of(float{})); break;
            case DType::f64: add(double{}, of(double{})); break;
            case DType::i32: add(std::uint32_t{}, of(std::uint32_t{})); break;  // integer sums wrap
            case DType::u64: add(std::uint64_t{}, of(std::uint64_t{})); break;
            default: add(float{}, [&, bits = of(std::uint16_t{})](std::size_t i) { return half_value(bits(i)); });
          }
          const bool same = std::memcmp(expected.data(), y.data(), y.size()) == 0 &&
                            std::memcmp(expected.data() + y.size(), z.data(), z.size()) == 0;
          EXPECT_TRUE(same) << cpu->target() << ": " << dtype_name(t) << ", " << r.rows << " rows of " << r.width
                            << ", " << r.apart << " apart, from " << r.shift
                            << (at_end ? ", at the end" : ", at the front");
        }
    }
}

// Rows have different lengths. Covers sums, loops that end early, stores, and nested loops.
TEST(CpuStrided, LoopsOverRowsOfDifferentLengthsMatchInterpreter) {
  std::mt19937 random(test_seed());
  for (const bool in_blocks : {false, true})
    for (const int longest : {0, 1, 3, 40}) {
      const std::size_t rows = 77;
      std::vector<std::int32_t> starts = {0}, columns;
      for (std::size_t i = 0; i < rows; ++i)
        starts.push_back(starts.back() + static_cast<std::int32_t>(random() % static_cast<unsigned>(longest + 1)));
      columns.resize(static_cast<std::size_t>(starts.back()) + 1);
      for (auto& c : columns) c = static_cast<std::int32_t>(random() % rows);
      std::vector<float> values(columns.size()), x(rows), marks(columns.size(), -1);
      for (auto* v : {&values, &x})
        for (auto& e : *v) e = static_cast<float>(random() % 1000) / 256;
      auto body = [&] {
        const BufferRef start = in("starts", DType::i32), column = in("columns", DType::i32), value = in("values"),
                        v = in("x");
        const BufferRef sums = out("sums"), counts = out("counts", DType::i32), mark = out("marks");
        const Value i = global_id();
        auto row = [&] {
          const Value begin = cast(DType::index, start.load(i)), end = cast(DType::index, start.load(i + 1));
          Variable sum(DType::f32, cast(DType::f32, i)), count(DType::i32, 0);
          Variable seen(DType::boolean, literal(DType::boolean, 0));
          for_(begin, end, [&](Value j) {
            const Value c = cast(DType::index, column.load(j));
            sum.set(sum.get() + value.load(j) * v.load(c));
            if_(
                c == i, [&] { seen.set(literal(DType::boolean, 1)); }, [&] { mark.store(j, sum.get()); });
            for_(begin, j,
                 [&](Value k) { if_(column.load(k) == column.load(j), [&] { count.set(count.get() + 1); }); });
          });
          Variable at(DType::index, begin);
          for_(begin, end, [&](Value) {  // stops at the first odd column
            while_([&] { return at.get() < end && column.load(min(at.get(), end - 1)) % 2 == 0; },
                   [&] { at.set(at.get() + 1); });
          });
          sums.store(i, sum.get());
          counts.store(i, count.get() * 1000 + cast(DType::i32, at.get()) + cast(DType::i32, seen.get()));
        };
        if (in_blocks)
          if_(i < static_cast<int>(rows), [&] { row(); });
        else
          row();
      };
      const Function f = in_blocks ? block_kernel("rows", {50, 1, 1}, body) : map_kernel("rows", body);
      expect_same(f, {in_blocks ? std::uint64_t{2} : rows, 1, 1},
                  {memory(starts), memory(columns), memory(values), memory(x), memory(std::vector<float>(rows)),
                   memory(std::vector<std::int32_t>(rows)), memory(marks)},
                  {1e-6, 1e-5});
    }
}

}  // namespace
}  // namespace tessera::testing
