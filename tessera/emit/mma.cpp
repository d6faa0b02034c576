// SPDX-License-Identifier: Apache-2.0
#include "tessera/emit/mma.h"

#include <functional>

namespace tessera::emit {

using ir::BinaryOp;
using ir::NodeId;

namespace {
constexpr std::int64_t side = ir::fragment_side, elements = side * side;
constexpr std::int64_t row_words = ir::fragment_depth(DType::i8) / 4;  // of a factor of i8
}  // namespace

// Index arithmetic never wraps, so the operation is marked as no-wrap.
NodeId MatrixLoops::arithmetic(BinaryOp op, NodeId x, NodeId y) {
  b_.set_no_wrap(true);
  const NodeId result = b_.binary(op, x, y);
  b_.set_no_wrap(false);
  return result;
}
void MatrixLoops::loop(NodeId count, const std::function<void(NodeId)>& body) {
  b_.set_no_wrap(true);
  b_.for_(number(0), count, number(1), [&](NodeId i) {
    b_.set_no_wrap(false);
    body(i);
  });
}

void MatrixLoops::every_element(const Element& body) {
  loop(number(side),
       [&](NodeId i) { loop(number(side), [&](NodeId j) { body(i, j, plus(times(i, number(side)), j)); }); });
}
// The k-th element of each lane is stored at index k, so that all lanes of a subgroup access the same index at the same
// time.
void MatrixLoops::for_each_lane_element(const Element& body) {
  if (!several_) return every_element(body);
  loop(lane_elements(), [&](NodeId k) {
    b_.if_(place(ir::PlaceOf::valid, k), [&] { body(place(ir::PlaceOf::row, k), place(ir::PlaceOf::column, k), k); });
  });
}

// Subgroups consist of consecutive threads of a block. The last subgroup may have fewer lanes.
NodeId MatrixLoops::active_lanes() {
  const NodeId width = b_.index(ir::IndexKind::subgroup_size);
  const NodeId threads = number(b_.function().threads_per_block());
  const NodeId left = arithmetic(BinaryOp::sub, threads, times(b_.index(ir::IndexKind::subgroup_id), width));
  return b_.binary(BinaryOp::min, width, left);
}
NodeId MatrixLoops::lane_elements() {
  if (!several_) return number(elements);
  const NodeId lanes = active_lanes();
  return b_.binary(BinaryOp::div, plus(number(elements - 1), lanes), lanes);
}
NodeId MatrixLoops::place(ir::PlaceOf what, NodeId k) {
  if (what == ir::PlaceOf::slot_row) return k;
  const NodeId e = several_ ? plus(times(k, active_lanes()), b_.index(ir::IndexKind::lane_id)) : k;
  if (what == ir::PlaceOf::valid) return b_.compare(ir::CompareOp::lt, e, number(elements));
  return b_.binary(what == ir::PlaceOf::column ? BinaryOp::rem : BinaryOp::div, e, number(side));
}
NodeId MatrixLoops::element(NodeId accumulator, NodeId e) {
  if (!several_) return b_.load(accumulator, e);
  const NodeId lanes = active_lanes();
  const NodeId own = b_.load(accumulator, b_.binary(BinaryOp::div, e, lanes));
  return b_.subgroup(ir::SubgroupOp::shuffle, own, b_.binary(BinaryOp::rem, e, lanes));
}

NodeId MatrixLoops::fragment(DType t) {
  return t == DType::i8 ? b_.local({DType::u32}, side * row_words) : b_.local({DType::f32}, elements);
}

void MatrixLoops::load(NodeId fragment, ir::FragmentRole role, NodeId memory, NodeId at, NodeId stride, bool transposed,
                       const std::function<NodeId(NodeId)>& to_f32) {
  const Element element = [&](NodeId i, NodeId j, NodeId place) {
    const NodeId from = transposed ? plus(plus(at, times(j, stride)), i) : plus(plus(at, times(i, stride)), j);
    b_.store(fragment, place, to_f32(b_.load(memory, from)));
  };
  role == ir::FragmentRole::accumulator ? for_each_lane_element(element) : every_element(element);
}

void MatrixLoops::load_words(NodeId fragment, NodeId memory, NodeId at, NodeId stride) {
  loop(number(side), [&](NodeId o) {
    loop(number(row_words), [&](NodeId w) {
      b_.store(fragment, plus(times(o, number(row_words)), w), b_.load(memory, plus(plus(at, times(o, stride)), w)));
    });
  });
}

void MatrixLoops::fill(NodeId accumulator, NodeId value) {
  for_each_lane_element([&](NodeId, NodeId, NodeId place) { b_.store(accumulator, place, value); });
}

void MatrixLoops::multiply(NodeId accumulator, NodeId left, NodeId right) {
  for_each_lane_element([&](NodeId i, NodeId j, NodeId place) {
    const NodeId sum = b_.local({DType::f32}, 1);
    b_.store(sum, number(0), b_.load(accumulator, place));
    loop(number(side), [&](NodeId k) {
      const NodeId a = b_.load(left, plus(times(i, number(side)), k));
      const NodeId b = b_.load(right, plus(times(k, number(side)), j));
      b_.store(sum, number(0), b_.binary(BinaryOp::add, b_.load(sum, number(0)), b_.binary(BinaryOp::mul, a, b)));
    });
    b_.store(accumulator, place, b_.load(sum, number(0)));
  });
}

void MatrixLoops::multiply_words(NodeId accumulator, NodeId left, NodeId right,
                                 const std::function<NodeId(NodeId, NodeId, NodeId)>& dot4) {
  for_each_lane_element([&](NodeId i, NodeId j, NodeId place) {
    NodeId sum = b_.constant(DType::i32, 0);
    for (std::int64_t w = 0; w < row_words; ++w)
      sum = dot4(b_.load(left, plus(times(i, number(row_words)), number(w))),
                 b_.load(right, plus(times(j, number(row_words)), number(w))), sum);
    b_.store(accumulator, place, b_.binary(BinaryOp::add, b_.load(accumulator, place), b_.cast(DType::f32, sum)));
  });
}

void MatrixLoops::store(NodeId accumulator, NodeId memory, NodeId at, NodeId stride) {
  for_each_lane_element([&](NodeId i, NodeId j, NodeId place) {
    b_.store(memory, plus(plus(at, times(i, stride)), j), b_.load(accumulator, place));
  });
}

void MatrixLoops::convert(NodeId left, NodeId accumulator, const std::function<NodeId(NodeId)>& rounded) {
  loop(number(elements), [&](NodeId e) { b_.store(left, e, rounded(element(accumulator, e))); });
}

void MatrixLoops::reduce_rows(ir::ReduceOp op, NodeId local, NodeId accumulator) {
  const BinaryOp step = op == ir::ReduceOp::sum ? BinaryOp::add : BinaryOp::max;
  loop(number(side), [&](NodeId row) {
    const NodeId first = times(row, number(side)), value = b_.local({DType::f32}, 1);
    b_.store(value, number(0), element(accumulator, first));
    b_.for_(number(1), number(side), number(1), [&](NodeId column) {
      b_.store(value, number(0), b_.binary(step, b_.load(value, number(0)), element(accumulator, plus(first, column))));
    });
    b_.store(local, row, b_.load(value, number(0)));
  });
}

}  // namespace tessera::emit
