// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/row_loop.h"

#include <bit>
#include <limits>

#include "tessera/ops/row_kernels.h"

namespace tessera::ops {

std::uint32_t row_threads(const Tiles& tiles, std::int64_t columns) {
  return columns <= 64 ? std::min(tiles.block, 16u) : columns <= 1024 ? std::min(tiles.block, 64u) : tiles.block;
}

RowSpec choose_row(const Tiles& tiles, DType x, DType weight, std::int64_t columns, std::uint32_t arrays) {
  RowSpec spec{x, weight, row_threads(tiles, columns)};
  if (tiles.vectors) return spec;
  constexpr std::uint32_t most_registers = 32;  // of the 64 that a block leaves to each thread
  const std::uint32_t registers = arrays * (row_dtype(x) == DType::f64 ? 2 : 1);
  const auto fits = [&] {
    spec.each = std::bit_ceil(static_cast<std::uint32_t>(ceil_div(columns, spec.threads)));
    return spec.each * registers <= most_registers;
  };
  if (columns <= 8192) {
    while (!fits() && spec.threads * 2 <= tiles.block_limit) spec.threads *= 2;
    spec.held = fits();
  }
  if (!spec.held) spec.threads = tiles.block, spec.each = 8;
  return spec;
}

RowSpec choose_row_read_once(const Tiles& tiles, DType x, DType weight, std::int64_t columns) {
  RowSpec spec{x, weight, row_threads(tiles, columns)};
  spec.each = std::bit_ceil(static_cast<std::uint32_t>(std::min<std::int64_t>(8, ceil_div(columns, spec.threads))));
  if (!tiles.vectors) return spec;
  // The lanes of a CPU compute short rows separately. In rows that are not long, too many elements of the last chunk
  // would not exist.
  spec.threads = columns <= 64 ? 0 : vector_lanes(tiles, x);
  spec.each = columns < 512 ? 1 : 8;
  return spec;
}

RowSpec choose_strided_row(const Tiles& tiles, DType x, DType weight) {
  return {x, weight, 0, tiles.vectors ? 1u : 4u, true};
}

RowLoop::RowLoop(const RowSpec& spec, ir::Value columns) : spec_(spec), columns_(columns) {
  if (spec.strided) {
    stride_ = ir::extent(0);
    row_ = ir::global_id(1) * stride_ + ir::global_id(0);
    base_ = ir::global_id(1) * (columns * stride_) + ir::global_id(0);
  } else {
    row_ = by_thread() ? ir::global_id(0) : ir::block_id(0);
    base_ = row_ * columns;
  }
}

void RowLoop::for_each(const std::function<void(const RowChunk&)>& body) const {
  const auto lanes = static_cast<int>(std::max(1u, spec_.threads)), each = static_cast<int>(spec_.each);
  const ir::Value lane = by_thread() ? ir::index_literal(0) : ir::thread_id();
  const auto chunk = [&](ir::Value first, int certain) {
    RowChunk elements;
    for (int i = 0; i < each; ++i) {
      const ir::Value column = i == 0 ? first : first + i * lanes;
      elements.push_back({column, offset(column), i < certain ? ir::Value() : column < columns_});
    }
    body(elements);
  };
  // A held row has more than half as many elements as fit (choose_row).
  if (held()) return chunk(lane, each / 2);
  const int step = lanes * each;
  const auto first = [&](ir::Value begin) { return by_thread() ? begin : begin + lane; };
  ir::for_(0, columns_ - (step - 1), step, [&](ir::Value begin) { chunk(first(begin), each); });
  if (step == 1) return;
  const ir::Value rest = columns_ % step;
  ir::if_(rest > 0, [&] { chunk(first(columns_ - rest), 0); });
}

void RowLoop::store(const ir::BufferRef& out, const RowChunk& chunk, const std::vector<ir::Value>& values) const {
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const auto write = [&] { out.store(chunk[i].offset, ir::cast(out.dtype(), values[i])); };
    if (chunk[i].exists.valid())
      ir::if_(chunk[i].exists, write);
    else
      write();
  }
}

void RowLoop::store_once(const ir::BufferRef& out, ir::Value value) const {
  if (by_thread())
    out.store(row_, value);
  else
    ir::if_(ir::thread_id() == 0, [&] { out.store(row_, value); });
}

RowValues::RowValues(const RowLoop& loop, const ir::BufferRef& memory, double past_end)
    : memory_(memory), past_end_(past_end) {
  if (loop.held()) loop.for_each([&](const RowChunk& chunk) { held_ = (*this)(chunk); });
}

std::vector<ir::Value> RowValues::operator()(const RowChunk& chunk) const {
  if (!held_.empty()) return held_;
  std::vector<ir::Value> values;
  for (const RowElement& e : chunk) values.push_back(load_at(memory_, e.offset, e.exists, past_end_));
  return values;
}

std::vector<ir::Value> load_columns(const ir::BufferRef& memory, const RowChunk& chunk) {
  std::vector<ir::Value> values;
  for (const RowElement& e : chunk) values.push_back(load_at(memory, e.column, e.exists));
  return values;
}

std::vector<ir::Value> RowExponentials::of(const RowValues& x, const RowChunk& chunk) const {
  if (!held.empty()) return held;
  std::vector<ir::Value> values = x(chunk);
  for (ir::Value& v : values) v = ir::exp(v - shift);
  return values;
}

RowExponentials sum_exponentials(const RowLoop& loop, const RowValues& x,
                                 const std::function<void(const RowChunk&, const std::vector<ir::Value>&)>& visit) {
  const DType t = loop.dtype();
  const ir::Value least = ir::literal(t, -std::numeric_limits<double>::infinity());
  const auto shift_of = [&](ir::Value top) { return ir::select(top == least, ir::literal(t, 0), top); };
  const ir::Variable largest(t, least), sum(t, 0);
  RowExponentials result;
  loop.for_each([&](const RowChunk& chunk) {
    const std::vector<ir::Value> values = x(chunk);
    if (visit) visit(chunk, values);
    const ir::Value before = largest.get();
    ir::Value top = before;
    for (const ir::Value v : values) top = ir::max(top, v);
    largest.set(top);
    if (!loop.online()) return;
    const ir::Value shift = shift_of(top);
    ir::Value added = ir::exp(values[0] - shift);
    for (std::size_t i = 1; i < values.size(); ++i) added = added + ir::exp(values[i] - shift);
    sum.set(ir::fma(sum.get(), ir::exp(before - shift), added));
  });
  const ir::Value own = largest.get();
  result.shift = shift_of(loop.max(own));
  if (loop.online()) {
    result.sum = loop.sum(sum.get() * ir::exp(own - result.shift));
    return result;
  }
  loop.for_each([&](const RowChunk& chunk) {
    const std::vector<ir::Value> exponentials = result.of(x, chunk);
    ir::Value total = sum.get();
    for (const ir::Value e : exponentials) total = total + e;
    sum.set(total);
    if (loop.held()) result.held = exponentials;
  });
  result.sum = loop.sum(sum.get());
  return result;
}

}  // namespace tessera::ops
