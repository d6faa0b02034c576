// SPDX-License-Identifier: Apache-2.0
#include "tessera/emit/mma.h"

#include <functional>

namespace tessera::emit {

using ir::BinaryOp;
using ir::NodeId;

namespace {
constexpr std::int64_t side = ir::fragment_side, elements = side * side;
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
  // Subgroups consist of consecutive threads of a block. The last subgroup may have fewer lanes.
  const NodeId width = b_.index(ir::IndexKind::subgroup_size), lane = b_.index(ir::IndexKind::lane_id);
  const NodeId threads = number(b_.function().threads_per_block());
  const NodeId left = arithmetic(BinaryOp::sub, threads, times(b_.index(ir::IndexKind::subgroup_id), width));
  const NodeId lanes = b_.binary(BinaryOp::min, width, left);
  const NodeId rounds = b_.binary(BinaryOp::div, plus(number(elements - 1), lanes), lanes);
  loop(rounds, [&](NodeId k) {
    const NodeId e = plus(times(k, lanes), lane);
    b_.if_(b_.compare(ir::CompareOp::lt, e, number(elements)),
           [&] { body(b_.binary(BinaryOp::div, e, number(side)), b_.binary(BinaryOp::rem, e, number(side)), k); });
  });
}

NodeId MatrixLoops::fragment() { return b_.local({DType::f32}, elements); }

void MatrixLoops::load(NodeId fragment, ir::FragmentRole role, NodeId memory, NodeId at, NodeId stride, bool transposed,
                       const std::function<NodeId(NodeId)>& to_f32) {
  const Element element = [&](NodeId i, NodeId j, NodeId place) {
    const NodeId from = transposed ? plus(plus(at, times(j, stride)), i) : plus(plus(at, times(i, stride)), j);
    b_.store(fragment, place, to_f32(b_.load(memory, from)));
  };
  role == ir::FragmentRole::accumulator ? for_each_lane_element(element) : every_element(element);
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

void MatrixLoops::store(NodeId accumulator, NodeId memory, NodeId at, NodeId stride) {
  for_each_lane_element([&](NodeId i, NodeId j, NodeId place) {
    b_.store(memory, plus(plus(at, times(i, stride)), j), b_.load(accumulator, place));
  });
}

}  // namespace tessera::emit
