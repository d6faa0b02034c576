// SPDX-License-Identifier: Apache-2.0
// With subgroups, each subgroup first combines the values of its lanes. Without subgroups, about sqrt(T) worker threads
// first combine the values of all T threads, with a stride. Then every thread combines the partial results. This takes
// two barriers for any T. In CPU implementations of OpenCL, each barrier splits the kernel, so few barriers are
// important. On GPUs, this is fast enough.
#include "tessera/emit/block_ops.h"

#include <functional>

#include "tessera/emit/expr.h"

namespace tessera::emit {

using ir::BinaryOp;
using ir::NodeId;
using ir::ReduceOp;

NodeId linear_thread_id(ir::Builder& b, const std::array<std::uint32_t, 3>& block, DType index) {
  NodeId id = b.index(ir::IndexKind::thread_id, 0);
  std::uint64_t stride = block[0];
  for (std::uint64_t d = 1; d < 3; ++d) {
    if (block[d] > 1) {
      const NodeId size = b.constant_of(index, static_cast<std::int64_t>(stride));
      id = b.binary(BinaryOp::add, b.binary(BinaryOp::mul, b.index(ir::IndexKind::thread_id, d), size), id);
    }
    stride *= block[d];
  }
  return id;
}

std::uint32_t BlockOperations::workers() const {
  std::uint32_t n = 1;
  while (n * n < threads_) ++n;
  return n;
}
NodeId BlockOperations::linear_id() {
  b_.set_no_wrap(true);
  const NodeId id = linear_thread_id(b_, b_.function().block_size, index_);
  b_.set_no_wrap(false);
  return id;
}

void BlockOperations::loop(NodeId begin, NodeId end, std::uint32_t step, const std::function<void(NodeId)>& body) {
  b_.set_no_wrap(true);
  b_.for_(begin, end, index_of(step), [&](NodeId i) {
    b_.set_no_wrap(false);
    body(i);
  });
}

NodeId BlockOperations::combine(ReduceOp op, NodeId x, NodeId y) {
  switch (op) {
    case ReduceOp::min: return b_.binary(BinaryOp::min, x, y);
    case ReduceOp::max: return b_.binary(BinaryOp::max, x, y);
    case ReduceOp::and_: return b_.binary(BinaryOp::and_, x, y);
    case ReduceOp::or_: return b_.binary(BinaryOp::or_, x, y);
    default: return b_.binary(BinaryOp::add, x, y);
  }
}

BlockOperations::Scratch& BlockOperations::scratch(DType dtype, bool values) {
  Scratch& s = scratch_[dtype];
  if (values && !s.values) s.values = b_.shared(dtype, threads_);
  // The subgroup width may be unknown, so every thread may be a subgroup.
  if (!s.partials) s.partials = b_.shared(dtype, subgroups_ ? threads_ : workers());
  return s;
}

NodeId BlockOperations::reduce(ReduceOp op, NodeId value) {
  const DType dtype = b_.type(value).dtype;
  const bool by_subgroup = subgroups_ && (op == ReduceOp::sum || op == ReduceOp::min || op == ReduceOp::max);
  if (threads_ == 1) return value;
  Scratch& s = scratch(dtype, !by_subgroup);
  const NodeId id = linear_id();
  NodeId count;
  if (by_subgroup) {
    const auto kind = op == ReduceOp::sum   ? ir::SubgroupOp::sum
                      : op == ReduceOp::min ? ir::SubgroupOp::min
                                            : ir::SubgroupOp::max;
    const NodeId part = b_.subgroup(kind, value);
    b_.if_(b_.compare(ir::CompareOp::eq, b_.index(ir::IndexKind::lane_id), index_of(0)),
           [&] { b_.store(s.partials, b_.index(ir::IndexKind::subgroup_id), part); });
    count = b_.index(ir::IndexKind::subgroup_count);
  } else {
    const std::uint32_t n = workers();
    b_.store(s.values, id, value);
    b_.barrier();
    b_.if_(b_.compare(ir::CompareOp::lt, id, index_of(n)), [&] {
      const NodeId sum = b_.local({dtype}, 1);
      b_.store(sum, index_of(0), b_.load(s.values, id));
      b_.set_no_wrap(true);
      const NodeId second = b_.binary(BinaryOp::add, id, index_of(n));
      loop(second, index_of(threads_), n,
           [&](NodeId i) { b_.store(sum, index_of(0), combine(op, b_.load(sum, index_of(0)), b_.load(s.values, i))); });
      b_.store(s.partials, id, b_.load(sum, index_of(0)));
    });
    count = index_of(n);
  }
  b_.barrier();
  const NodeId total = b_.local({dtype}, 1);
  b_.store(total, index_of(0), b_.load(s.partials, index_of(0)));
  loop(index_of(1), count, 1, [&](NodeId i) {
    b_.store(total, index_of(0), combine(op, b_.load(total, index_of(0)), b_.load(s.partials, i)));
  });
  const NodeId result = b_.load(total, index_of(0));
  // Without subgroups, the next operation has a barrier before it writes the partial results. With subgroups, it has no
  // such barrier, so a barrier is needed here.
  if (subgroups_) b_.barrier();
  return b_.block_uniform(result);
}

NodeId BlockOperations::scan(NodeId value, bool exclusive) {
  const DType dtype = b_.type(value).dtype;
  const NodeId zero = b_.constant(dtype, 0);
  if (threads_ == 1) return exclusive ? zero : value;
  Scratch& s = scratch(dtype, true);
  const NodeId id = linear_id();
  // Worker w combines `each` values, starting at w * each.
  const std::uint32_t n = workers(), each = (threads_ + n - 1) / n;
  b_.store(s.values, id, value);
  b_.barrier();
  b_.if_(b_.compare(ir::CompareOp::lt, id, index_of(n)), [&] {
    const NodeId sum = b_.local({dtype}, 1);
    b_.store(sum, index_of(0), zero);
    const NodeId begin = b_.binary(BinaryOp::mul, id, index_of(each));
    const NodeId end = b_.binary(BinaryOp::min, b_.binary(BinaryOp::add, begin, index_of(each)), index_of(threads_));
    loop(begin, end, 1, [&](NodeId i) {
      b_.store(sum, index_of(0), combine(ReduceOp::sum, b_.load(sum, index_of(0)), b_.load(s.values, i)));
      b_.store(s.values, i, b_.load(sum, index_of(0)));
    });
    b_.store(s.partials, id, b_.load(sum, index_of(0)));
  });
  b_.barrier();
  const NodeId before = b_.local({dtype}, 1);
  const NodeId worker = b_.binary(BinaryOp::div, id, index_of(each));
  b_.store(before, index_of(0), zero);
  loop(index_of(0), worker, 1, [&](NodeId i) {
    b_.store(before, index_of(0), combine(ReduceOp::sum, b_.load(before, index_of(0)), b_.load(s.partials, i)));
  });
  NodeId mine;
  if (exclusive) {
    const NodeId first = b_.compare(ir::CompareOp::eq, b_.binary(BinaryOp::rem, id, index_of(each)), index_of(0));
    mine = b_.load_if(b_.unary(ir::UnaryOp::not_, first), s.values, b_.binary(BinaryOp::sub, id, index_of(1)), zero);
  } else {
    mine = b_.load(s.values, id);
  }
  const NodeId result = combine(ReduceOp::sum, b_.load(before, index_of(0)), mine);
  b_.barrier();  // the next operation reuses the scratch memory
  return result;
}

}  // namespace tessera::emit
