// SPDX-License-Identifier: Apache-2.0
// What an Array's elements come from: memory, or an elementwise expression over other sources that is computed when
// needed. Inside array/ only. Deferred sources are nodes of kernel IR operations; flushing turns a graph of them into
// one kernel.
#pragma once

#include <mutex>

#include "tessera/array/array.h"
#include "tessera/array/fused.h"

namespace tessera::detail {

/// An operand of a deferred operation.
struct Term {
  enum Kind : std::uint8_t { source_element, view, scalar } kind = scalar;
  std::shared_ptr<Source> source;  ///< source_element: its elements in order, one for one; view: strided memory
  Strides strides;                 ///< view: along the expression's dimensions
  std::int64_t offset = 0;         ///< view: elements
  DType dtype = DType::f32;
  std::uint64_t bits = 0;  ///< scalar
};

class Source : public PendingReader, public std::enable_shared_from_this<Source> {
 public:
  static std::shared_ptr<Source> of(std::shared_ptr<Storage> storage, DType dtype);
  /// An operation over `args`, all seen as `shape`. Computed at once where the rules say so.
  static std::shared_ptr<Source> deferred(ir::Op op, std::uint8_t sub, DType dtype, Shape shape, Device device,
                                          std::vector<Term> args);

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  bool pending() const;
  /// The memory; computes first if pending. `rule` says why, for the trace.
  std::shared_ptr<Storage> storage(const char* rule);
  void flush() override { storage("its input is about to be written"); }

  /// Adds this source, or if it is pending its whole expression, to `fused`; gives the node. The locks of everything
  /// that was walked stay held by `walk`. The walk stops (-1) at one whose lock another thread holds, and at one that
  /// is no part of the recording that this thread makes, which is computed first and is an input: a replay does not
  /// compute it again. Then both are made anew once `walk.wait()` returned, so that no thread waits for a lock, or
  /// computes, while it holds others.
  struct Walk;
  int collect(Fused& fused, Walk& walk);
  /// Adds one operation over terms to `fused`.
  static int collect_operation(Fused& fused, Walk& walk, ir::Op op, std::uint8_t sub, DType dtype,
                               std::span<const Term> args);
  /// Computes one operation over terms into memory that exists.
  static void run_into(StridedView target, const Shape& shape, Device device, ir::Op op, std::uint8_t sub,
                       std::span<const Term> args);

 private:
  Source() = default;
  void add_parent(const std::weak_ptr<PendingReader>& parent);
  void computed(std::shared_ptr<Storage> storage, Walk& walk);

  mutable std::mutex lock_;
  Device device_;
  DType dtype_ = DType::f32;
  std::shared_ptr<Storage> storage_;
  /// Recorder::number() when it was made; where the thread that made it recorded nothing, the latest recording that
  /// goes on of its operands, of pending ones if there are: what depends on something of a recording is part of it,
  /// whichever thread deferred it.
  std::uint64_t recording_ = 0;
  // While pending:
  ir::Op op_ = ir::Op::none;
  std::uint8_t sub_ = 0;
  Shape shape_;
  std::vector<Term> args_;
  std::uint32_t nodes_ = 0;                            ///< at least the number of operations below
  std::uint32_t views_ = 0;                            ///< at least the number of inputs below
  std::uint32_t scalars_ = 0;                          ///< at least the number of host scalars below
  std::uint64_t held_bytes_ = 0;                       ///< at least the bytes of the inputs below
  std::vector<std::weak_ptr<PendingReader>> parents_;  ///< pending expressions that read this one
};

/// What a walk over a graph of pending sources has met, with their locks. What is released goes only after the locks.
struct Source::Walk {
  struct Met {
    Source* source;
    int node;
    std::uint32_t uses;
  };
  std::vector<Term> released;
  std::shared_ptr<Source> blocked;        ///< another thread holds its lock
  std::shared_ptr<Source> compute_first;  ///< no part of the recording
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<Met> met;
  /// One of the two is set: what was collected is not whole.
  bool stopped() const { return blocked || compute_first; }
  /// Gives all locks back, then waits until the blocking source was free once, or computes what comes first.
  void wait();
  Met* find(const Source* s) {
    for (Met& m : met)
      if (m.source == s) return &m;
    return nullptr;
  }
  /// Does something outside of the walk refer to it still?
  static bool held_elsewhere(const Met& m) {
    return m.source->weak_from_this().use_count() > static_cast<long>(m.uses);
  }
  /// Sources other than `root` that something outside of the walk still refers to: written by the same kernel, so that
  /// nothing is computed twice. Adds them as outputs and gives their storages.
  std::vector<std::pair<Source*, std::shared_ptr<Storage>>> shared_outputs(Fused& fused, const Source* root,
                                                                           const Shape& shape);
};

void trace_flush(const Fused& fused, const char* rule);

}  // namespace tessera::detail
