// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/top_k_kernels.h"

#include <array>
#include <limits>

namespace tessera::ops {
namespace {

using Each = std::array<ir::Value, TopKSpec::each>;

constexpr std::uint32_t sign_bit = 0x80000000, infinity_bits = 0x7f800000;
constexpr std::uint32_t largest_key = 0xffffffff, smallest_key = sign_bit - infinity_bits - 1;

ir::Value word(std::uint32_t value) { return ir::literal(DType::u32, value); }

/// Returns an unsigned integer that sorts like the float with these bits. It is largest_key for NaN and infinity,
/// smallest_key for -infinity, and never 0.
ir::Value key_of(ir::Value bits) {
  const ir::Value size = bits & (sign_bit - 1), positive = bits < word(sign_bit);
  const ir::Value key = ir::select(positive || size == 0, bits | sign_bit, ~bits);
  return ir::select(size > word(infinity_bits) || bits == word(infinity_bits), word(largest_key),
                    ir::select(size == 0, word(sign_bit), key));
}

ir::Value count_if(ir::Value condition) { return ir::select(condition, word(1), word(0)); }

/// Returns the k-th largest key of the block, which has at least k keys other than 0.
ir::Value kth_largest(const Each& keys, ir::Value k) {
  const ir::Variable found(DType::u32, word(0));
  ir::for_(0, 32, [&](ir::Value bit) {
    const ir::Value next = found.get() | (word(sign_bit) >> ir::cast(DType::u32, bit));
    ir::Value count = word(0);
    for (const ir::Value key : keys) count = count + count_if(key >= next);
    found.set(ir::select(ir::block_sum(count) >= k, next, found.get()));
  });
  return found.get();
}

}  // namespace

TopKSpec choose_top_k(const Tiles& tiles) { return {.threads = std::min(512u, tiles.block_limit)}; }

ir::Function trace_top_k(const TopKSpec& spec) {
  const std::string name = spec.finite ? "finite_argmax" : spec.single ? "largest" : "top_k";
  ir::Builder builder(name + (spec.pairs ? "_of_pairs" : ""), ir::KernelKind::block, {spec.threads, 1, 1});
  if (!spec.single) builder.set_min_blocks(1);  // 64 registers do not hold the elements, their keys and the scan
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.pairs ? DType::i32 : DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::i32, ir::Access::read_write);
  const ir::Value n = ir::scalar_param("n", DType::index);
  const ir::Value block = ir::block_id(0), first = block * spec.portion(),
                  begin = first + ir::thread_id() * static_cast<int>(spec.each);
  const auto bits_of = [&](ir::Value i, ir::Value exists) {
    const ir::Value zero = ir::literal(x.dtype(), 0);
    return ir::bitcast(DType::u32, x.load_if(exists, spec.pairs ? 2 * i : i, zero));
  };
  const auto index_of = [&](ir::Value i) { return spec.pairs ? x.load(2 * i + 1) : ir::cast(DType::i32, i); };
  Each bits, keys;
  for (std::uint32_t e = 0; e < spec.each; ++e) {
    const ir::Value i = begin + static_cast<int>(e), exists = i < n;
    bits[e] = bits_of(i, exists);
    keys[e] = ir::select(exists, key_of(bits[e]), word(0));
  }
  const auto store = [&](ir::Value to, ir::Value of, ir::Value i) {
    out.store(2 * to, ir::bitcast(DType::i32, of)), out.store(2 * to + 1, index_of(i));
  };

  if (spec.single) {
    ir::Value most = keys[0];
    for (const ir::Value key : keys) most = ir::max(most, key);
    most = ir::block_max(most);
    ir::Value at = ir::index_literal(std::numeric_limits<std::int32_t>::max());
    for (std::uint32_t e = spec.each; e-- > 0;) at = ir::select(keys[e] == most, begin + static_cast<int>(e), at);
    at = ir::block_min(at);
    ir::if_(ir::thread_id() == 0, [&] {
      const ir::Value value = bits_of(at, at < n);
      if (!spec.finite) return store(block, value, at);
      const ir::Value finite = most != word(largest_key) && most != word(smallest_key);
      out.store(0, ir::select(finite, index_of(at), ir::literal(DType::i32, -1)));
      out.store(1, ir::bitcast(DType::i32, value)), out.store(2, index_of(at));
    });
    return builder.finish();
  }

  const ir::Value k = ir::scalar_param("k", DType::index);
  const ir::Value wanted = ir::cast(DType::u32, ir::min(k, n - first));
  const ir::Value kth = kth_largest(keys, wanted);
  ir::Value larger = word(0), equal = word(0);
  for (const ir::Value key : keys) larger = larger + count_if(key > kth), equal = equal + count_if(key == kth);
  // Of the elements that equal the k-th largest one, the first are selected.
  const ir::Value selected_equals = wanted - ir::block_sum(larger);
  const ir::Value before = ir::block_scan((larger << word(16)) | equal, true);
  larger = before >> word(16), equal = before & 0xffff;
  for (std::uint32_t e = 0; e < spec.each; ++e) {
    const ir::Value is_larger = keys[e] > kth, is_equal = keys[e] == kth;
    const ir::Value to = block * k + ir::cast(DType::index, larger + ir::min(equal, selected_equals));
    ir::if_(is_larger || (is_equal && equal < selected_equals),
            [&] { store(to, bits[e], begin + static_cast<int>(e)); });
    larger = larger + count_if(is_larger), equal = equal + count_if(is_equal);
  }
  return builder.finish();
}

}  // namespace tessera::ops
