// SPDX-License-Identifier: Apache-2.0
// Sorts on the device, using keys: unsigned integers that sort in the same order as the elements. All methods are
// stable.
// - Short rows: for each element, count the elements that precede it.
// - Longer rows: a radix sort (radix_sort.h).
// - Rows of up to 1024 elements on a CPU: a sorting network, with one row per vector lane.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/radix_sort.h"
#include "tessera/array/sort_keys.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"

namespace tessera {

using detail::element_of;
using detail::key_bits;
using detail::key_constant;
using detail::key_dtype;
using detail::key_of;
using ir::Value;

namespace {

constexpr std::int64_t short_extent = 128, shortest_in_network = 32, longest_in_network = 1024;

struct ShortSpec {
  DType dtype;
  bool order;  // return positions instead of elements
  friend bool operator==(const ShortSpec&, const ShortSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(dtype) * 2 + order; }
};

ir::Function trace_short(const ShortSpec& spec) {
  ir::Builder builder(spec.order ? "argsort_short_rows" : "sort_short_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto in = ir::buffer_param("in", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.order ? DType::i64 : spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index);
  const Value i = ir::global_id(0), begin = ir::global_id(1) * extent;
  const Value element = in.load(begin + i), key = key_of(element);
  const ir::Variable before(DType::index, 0);
  ir::for_(0, extent, [&](Value j) {
    const Value other = key_of(in.load(begin + j));
    before.set(before.get() + ir::cast(DType::index, other < key || (other == key && j < i)));
  });
  out.store(begin + before.get(), spec.order ? ir::cast(DType::i64, i) : element);
  return builder.finish();
}

// The number of elements that the network sorts in registers. It is also the step of the network's loops.
constexpr int network_block = 16;

struct NetworkSpec {
  DType dtype;
  bool order;
  std::uint32_t room;  // Size of the buffer for one row, padded to whole blocks.
  friend bool operator==(const NetworkSpec&, const NetworkSpec&) = default;
  std::size_t hash() const { return room << 9 | static_cast<std::size_t>(dtype) << 1 | order; }
};

/// The dtype of the keys that the network sorts. If positions are requested, the position is appended to the element's
/// key, which makes the sort stable. Returns nullopt if the key would exceed 64 bits.
std::optional<DType> network_key(DType t, bool order) {
  const int bits = key_bits(t);
  if (!order) return key_dtype(t);
  if (bits > 32) return {};
  return bits > 16 ? DType::u64 : DType::u32;
}

// A bitonic sort in which each merge first compares elements at mirrored positions. The smaller element always moves
// down, so no padding is needed after the last block.
ir::Function trace_network(const NetworkSpec& spec) {
  ir::Builder builder(spec.order ? "argsort_rows_by_network" : "sort_rows_by_network", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto in = ir::buffer_param("in", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.order ? DType::i64 : spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), begin = ir::global_id(0) * extent;
  const DType t = *network_key(spec.dtype, spec.order);
  const std::uint64_t position_bits = spec.order ? 4 * dtype_size(t) : 0;
  const auto keys = ir::local_array(t, spec.room);
  const Value count = (extent + (network_block - 1)) / network_block * network_block;
  ir::for_(0, extent, [&](Value k) {
    const Value key = key_of(in.load(begin + k));
    keys.store(k, spec.order ? ir::cast(t, key) << key_constant(t, position_bits) | ir::cast(t, k) : key);
  });
  ir::for_(extent, count, [&](Value k) { keys.store(k, key_constant(t, ~std::uint64_t{0})); });

  const auto in_order = [](Value& low, Value& high) {
    const Value smaller = ir::min(low, high);
    high = ir::max(low, high), low = smaller;
  };
  using Places = std::vector<Value>;
  using Pairs = std::initializer_list<std::pair<std::size_t, std::size_t>>;
  // Sorts the pairs of elements at `places(at)` for each `at` in [from, to).
  const auto along = [&](Value from, Value to, auto&& places, Pairs pairs) {
    ir::for_(from, to, [&](Value at) {
      const Places place = places(at);
      Places held;
      for (const Value p : place) held.push_back(keys.load(p));
      for (const auto& [low, high] : pairs) in_order(held[low], held[high]);
      for (std::size_t p = 0; p < place.size(); ++p) keys.store(place[p], held[p]);
    });
  };
  // Applies `steps(block)` to each block of elements.
  const auto in_blocks = [&](auto&& steps) {
    ir::for_(0, count, network_block, [&](Value at) {
      std::array<Value, network_block> block;
      for (int i = 0; i < network_block; ++i) block[static_cast<std::size_t>(i)] = keys.load(at + i);
      steps([&](int a, int b) { in_order(block[static_cast<std::size_t>(a)], block[static_cast<std::size_t>(b)]); });
      for (int i = 0; i < network_block; ++i) keys.store(at + i, block[static_cast<std::size_t>(i)]);
    });
  };
  const auto halves = [](int from, auto&& step) {  // The remaining steps of a merge.
    for (int apart = from; apart > 0; apart /= 2)
      for (int i = 0; i < network_block; ++i)
        if ((i & apart) == 0) step(i, i + apart);
  };
  // Batcher's merge exchange needs fewer comparisons within a block (Knuth, volume 3, algorithm 5.2.2M).
  in_blocks([&](auto&& step) {
    for (int p = network_block / 2; p > 0; p /= 2)
      for (int q = network_block / 2, r = 0, d = p; d > 0; d = q - p, q /= 2, r = p) {
        for (int i = 0; i + d < network_block; ++i)
          if ((i & p) == r) step(i, i + d);
        if (q == p) break;
      }
  });
  const ir::Variable run(DType::index, network_block);
  ir::while_([&] { return run.get() < count; },
             [&] {
               const Value half = run.get(), whole = half * 2, quarter = half / 2;
               // Does two steps in one pass if both combine elements of different blocks. Only the higher position of a
               // pair can be beyond the end.
               ir::if_(
                   half == network_block,
                   [&] {
                     ir::for_(0, count, whole, [&](Value base) {
                       const Value end = base + whole - 1;
                       along(ir::max(base, base + base + whole - count), base + half,
                             [&](Value at) {
                               return Places{at, base + end - at};
                             },
                             {{0, 1}});
                     });
                   },
                   [&] {
                     ir::for_(0, count - half, whole, [&](Value base) {
                       const Value fourth = ir::max(base, base + base + whole - count), stop = base + quarter;
                       const Value third = ir::max(base, fourth - quarter), end = base + base + whole - 1;
                       const auto low = [&](Value at) { return Places{at, at + quarter}; };
                       const auto three = [&](Value at) { return Places{at, at + quarter, end - quarter - at}; };
                       const auto all = [&](Value at) {
                         return Places{at, at + quarter, end - quarter - at, end - at};
                       };
                       along(base, ir::min(third, stop), low, {{0, 1}});
                       along(third, ir::min(fourth, stop), three, {{1, 2}, {0, 1}});
                       along(fourth, stop, all, {{0, 3}, {1, 2}, {0, 1}, {2, 3}});
                     });
                   });
               const ir::Variable apart(DType::index, half / 4);
               ir::while_([&] { return apart.get() >= network_block; },
                          [&] {
                            const Value step = apart.get(), next = step / 2;
                            ir::if_(
                                step == network_block,
                                [&] {
                                  ir::for_(0, count - step, step * 2, [&](Value base) {
                                    along(base, ir::min(base + step, count - step),
                                          [&](Value at) {
                                            return Places{at, at + step};
                                          },
                                          {{0, 1}});
                                  });
                                },
                                [&] {
                                  ir::for_(0, count - next, step * 2, [&](Value base) {
                                    const Value stop = base + next;
                                    const Value four = ir::max(base, ir::min(stop, count - step - next));
                                    const Value three = ir::max(base, ir::min(stop, count - step));
                                    const auto places = [&](int n) {
                                      return [=](Value at) {
                                        Places p;
                                        for (int i = 0; i < n; ++i) p.push_back(at + next * i);
                                        return p;
                                      };
                                    };
                                    along(base, four, places(4), {{0, 2}, {1, 3}, {0, 1}, {2, 3}});
                                    along(four, three, places(3), {{0, 2}, {0, 1}});
                                    along(three, ir::min(stop, count - next), places(2), {{0, 1}});
                                  });
                                });
                            apart.set(step / 4);
                          });
               in_blocks([&](auto&& step) { halves(network_block / 2, step); });
               run.set(whole);
             });
  const auto result = [&](Value k) {
    const Value key = keys.load(k);
    return spec.order ? ir::cast(DType::i64, key & key_constant(t, (std::uint64_t{1} << position_bits) - 1))
                      : element_of(key, spec.dtype);
  };
  const Value rest = extent / 4 * 4;
  ir::for_(0, rest, 4, [&](Value k) {
    out.store(begin + k, ir::make_vector({result(k), result(k + 1), result(k + 2), result(k + 3)}));
  });
  ir::for_(rest, extent, [&](Value k) { out.store(begin + k, result(k)); });
  return builder.finish();
}

Array sorted_short(const Array& a, std::int64_t rows, std::int64_t extent, bool order) {
  Array out = Array::empty(a.shape(), order ? DType::i64 : a.dtype(), a.device());
  static auto& family = *new KernelFamily<ShortSpec>(trace_short);
  family({a.dtype(), order})
      .launch({static_cast<std::uint64_t>(extent), static_cast<std::uint64_t>(rows), 1},
              {a.view(), out.view(), LaunchArgument::index(extent)});
  return out;
}

Array sorted_by_network(const Array& a, std::int64_t rows, std::int64_t extent, bool order) {
  Array out = Array::empty(a.shape(), order ? DType::i64 : a.dtype(), a.device());
  static auto& family = *new KernelFamily<NetworkSpec>(trace_network);
  family({a.dtype(), order, std::bit_ceil(static_cast<std::uint32_t>(std::max<std::int64_t>(extent, 64)))})
      .launch({static_cast<std::uint64_t>(rows), 1, 1}, {a.view(), out.view(), LaunchArgument::index(extent)});
  return out;
}

Array sorted_along(const char* name, const Array& a, std::size_t axis, bool order) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::int64_t extent = a.shape()[axis];
  if (extent > most)
    fail<ShapeError>({.operation = name,
                      .with = {{"shape", to_string(a.shape())}, {"axis", std::to_string(axis)}},
                      .wrong = "the axis has more than 2^31 - 1 elements"});
  if (a.size() == 0) return Array::empty(a.shape(), order ? DType::i64 : a.dtype(), a.device());
  if (extent == 1) return order ? Array::zeros(a.shape(), DType::i64, a.device()) : a.copy();
  std::vector<int> axes;
  for (int d = 0; d < a.rank(); ++d) axes.push_back(d);
  std::swap(axes[axis], axes.back());  // this permutation is its own inverse
  const Array last = a.permute(axes).as_contiguous();
  const std::int64_t rows = a.size() / extent;
  // A network sorts one row per vector lane, so a single row takes as long as a full vector of rows.
  const bool network = blocks_are_vectors(kernel_backend(a.device())) && network_key(a.dtype(), order) &&
                       extent > shortest_in_network && extent <= longest_in_network;
  const Array out = network                  ? sorted_by_network(last, rows, extent, order)
                    : extent <= short_extent ? sorted_short(last, rows, extent, order)
                                             : detail::radix_sort(last, extent, order);
  return out.permute(axes);
}

}  // namespace

Array argsort(const Array& a, int axis) {
  if (a.rank() == 0) return argsort(a.reshape({1}), axis);
  const detail::Operation operation("argsort", a);
  const auto d = static_cast<std::size_t>(normalise_axis("argsort", axis, a.shape().size()));
  return operation.finish(sorted_along("argsort", detail::without_history(a), d, true), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(d)}};
  });
}

Array sort(const Array& a, int axis) {
  if (a.rank() == 0) return sort(a.reshape({1}), axis);
  const detail::Operation operation("sort", a);
  const auto d = static_cast<std::size_t>(normalise_axis("sort", axis, a.shape().size()));
  Array out = a.has_history() ? take_along_axis(a, argsort(a, static_cast<int>(d)), static_cast<int>(d))
                              : sorted_along("sort", a, d, false);
  return operation.finish(std::move(out), [&] { return Attributes{{"axis", static_cast<std::int64_t>(d)}}; });
}

}  // namespace tessera
