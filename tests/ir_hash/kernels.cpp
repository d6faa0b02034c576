// SPDX-License-Identifier: Apache-2.0
// Prints the hash and text of kernels with operands that C++ may evaluate in any order. `check` compiles this file with
// several compilers and with shifted lines, and compares the outputs.
#include <cstdio>
#include <functional>
#include <limits>

#include "tessera/ir/value.h"

namespace {

using namespace tessera;
using namespace tessera::ir;

BufferRef in(const char* name, DType t = DType::f32) { return buffer_param(name, t, Access::read); }
BufferRef out(const char* name, DType t = DType::f32) { return buffer_param(name, t, Access::read_write); }

void show(const char* name, std::array<std::uint32_t, 3> block, const std::function<void()>& body) {
  Builder builder(name, block[0] == 0 ? KernelKind::map : KernelKind::block,
                  block[0] == 0 ? std::array<std::uint32_t, 3>{1, 1, 1} : block);
  Builder::Scope scope(builder);
  body();
  const Function fn = builder.finish();
  std::printf("%s\n%s\n", to_string(hash_of(fn)).c_str(), to_text(fn).c_str());
}

Value norm(BufferRef x, Value at) { return sqrt(x.load(at) * x.load(at) + x.load(at + 1) * x.load(at + 1)); }

}  // namespace

int main() {
  constexpr std::array<std::uint32_t, 3> map = {0, 0, 0};

  show("saxpy", map, [] {
    BufferRef x = in("x"), y = out("y");
    Value a = scalar_param("a", DType::f32);
    y.store(global_id(), a * x.load(global_id()) + y.load(global_id()));
  });

  show("expression", map, [] {
    BufferRef x = in("x"), y = in("y"), z = out("z");
    Value i = global_id();
    z.store(i * extent(1) + global_id(1),
            (x.load(i) + y.load(i + 1)) * (x.load(i + 2) - y.load(i + 3)) / (exp(x.load(i)) + log(y.load(i))));
  });

  show("functions", map, [] {
    BufferRef x = in("x"), z = out("z");
    z.store(global_id(), max(norm(x, global_id()), norm(x, global_id() * 3)) + fma(x.load(0), x.load(1), x.load(2)));
  });

  show("branches", map, [] {
    BufferRef x = in("x"), z = out("z");
    Value i = global_id();
    Variable a(DType::f32, x.load(i) * x.load(i + 1)), b(DType::f32, 0.f);
    if_(
        x.load(i + 2) < x.load(i + 3), [&] { b.set(a.get() + x.load(4) * x.load(5)); },
        [&] { a.set(a.get() - b.get()); });
    z.store(i, select(a.get() > b.get(), a.get(), b.get() * a.get()));
  });

  show("loops", map, [] {
    BufferRef x = in("x"), z = out("z");
    Value n = scalar_param("n", DType::index);
    Variable sum(DType::f32, 0.f);
    for_(Operand(0), n, [&](Value i) {
      for_(i, n, 2, [&](Value j) { sum.set(sum.get() + x.load(i * n + j) * x.load(j * n + i)); });
      while_([&] { return sum.get() > x.load(i) + x.load(0); }, [&] { sum.set(sum.get() / (x.load(1) + x.load(2))); });
    });
    z.store(global_id(), sum.get());
  });

  show("returns", map, [] {
    BufferRef x = in("x"), z = out("z");
    Value i = global_id();
    if_(i >= x.size() || i >= z.size(), [] { return_(); });
    for_(0, 8, [&](Value j) {
      if_(x.load(i) == x.load(j), [&] {
        z.store(i, x.load(j) - x.load(i));
        return_();
      });
    });
    z.store(i, x.load(i) + x.load(0));
  });

  show("tiled", {16, 16, 1}, [] {
    BufferRef a = in("a"), b = in("b"), c = out("c");
    Value n = scalar_param("n", DType::index);
    BufferRef as = shared(DType::f32, 256), bs = shared(DType::f32, 256);
    Value at = thread_id(1) * 16 + thread_id(0);
    Variable sum(DType::f32, 0.f);
    for_(Operand(0), n / 16, [&](Value t) {
      as.store(at, a.load_if(t < n && thread_id(0) < n, global_id(1) * n + t * 16 + thread_id(0), 0.f));
      bs.store(at, b.load_if(t < n, (t * 16 + thread_id(1)) * n + global_id(0), 0.f));
      barrier();
      for_(0, 16,
           [&](Value k) { sum.set(sum.get() + as.load(thread_id(1) * 16 + k) * bs.load(k * 16 + thread_id(0))); });
      barrier();
    });
    c.store(global_id(1) * n + global_id(0), sum.get());
  });

  show("softmax", {64, 1, 1}, [] {
    BufferRef x = in("x"), y = out("y");
    Value v = x.load(global_id());
    y.store(global_id(),
            exp(v - block_max(v)) / block_sum(exp(v - block_max(v))) + block_scan(v, true) * block_scan(v, false));
  });

  show("subgroups", {64, 1, 1}, [] {
    BufferRef x = in("x"), y = out("y");
    Value v = x.load(global_id());
    y.store(global_id(), subgroup_sum(v) * subgroup_max(v) + subgroup(SubgroupOp::shuffle_xor, v, 1) -
                             subgroup(SubgroupOp::shuffle, v, lane_id() / 2));
  });

  show("matrices", {64, 1, 1}, [] {
    BufferRef a = in("a", DType::f16), b = in("b", DType::f16), s = in("start"), c = out("c");
    Value n = scalar_param("n", DType::index), row = block_id(1) * 16, column = (block_id(0) + subgroup_id()) * 16;
    Fragment left(FragmentRole::left, DType::f16), right(FragmentRole::right, DType::f16),
        sum(FragmentRole::accumulator, DType::f32);
    sum.fill(s.load(0) * s.load(1));
    for_(0, n, 16, [&](Value k) {
      left.load(a, row * n + k, n);
      right.load_transposed(b, column * n + k, n + 16);
      sum.multiply_add(left, right);
    });
    sum.store(c, row * n + column, n);
  });

  show("types", map, [] {
    BufferRef h = in("h", DType::f16), b = in("b", DType::bf16), q = in("q", DType::u32), y = out("y"),
              n = out("n", DType::i32);
    Value i = global_id();
    y.store(i, h.load(i) * b.load(i) +
                   cast(DType::f32, dot4(Dot4Signs::unsigned_signed, q.load(i), q.load(i + 1), cast(DType::i32, i))));
    Value v = h.load_vector(i * 4, 4);
    y.store(i + 1, extract(v, 0) + extract(v, 3));
    n.atomic(AtomicOp::add, i % 7, bitcast(DType::i32, q.load(i)) ^ bitcast(DType::i32, q.load(i + 2)));
    n.store(0, cast(DType::i32, y.load(0) * 0.1f + std::numeric_limits<float>::infinity()));
    print("{} {}", {i, y.load(i)});
  });
}
