// SPDX-License-Identifier: Apache-2.0
// The shared state of arrays: first a pending expression, then the memory with its result. An evaluation stores only
// the results of expressions that an array still refers to. Internal to array/.
#pragma once

#include <atomic>
#include <optional>

#include "tessera/array/array.h"
#include "tessera/array/expression.h"
#include "tessera/device/memory/pending.h"

namespace tessera::detail {

class Source final : public PendingResult {
  struct Private {};

 public:
  explicit Source(Private) {}
  static std::shared_ptr<Source> of(std::shared_ptr<Storage> storage, DType dtype);
  /// Returns the Source that arrays share for an expression. Creates it if there is none.
  static std::shared_ptr<Source> of(const std::shared_ptr<const Expr>& expr);
  /// Creates a Source whose expression is set later.
  static std::shared_ptr<Source> pending_on(Device device, DType dtype);

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  bool computed() const { return computed_.load(std::memory_order_acquire); }
  bool pending() const { return !computed(); }
  /// Recorder::number() when the Source was created, or the recording of its expression. Work that depends on a
  /// recorded value is part of the recording, independent of the thread that deferred it.
  std::uint64_t recording() const { return recording_; }
  /// Returns the memory. Computes it first if it is pending; the trace prints `rule` as the reason. Pending `siblings`
  /// of the same shape on the same device are computed by the same kernel, up to its size limit.
  const std::shared_ptr<Storage>& storage(const char* rule, std::span<const std::shared_ptr<Source>> siblings = {});
  const std::shared_ptr<Storage>& memory() const { return storage_; }  ///< Requires computed().
  /// True if the memory has been written in place after this Source computed it.
  bool overwritten() const { return storage_->writes() != writes_; }
  bool flush() override;

  // These require the registry's lock:
  const std::shared_ptr<const Expr>& expression() const { return expr_; }  ///< null once computed
  /// Makes `source` the pending result of `expr`.
  static void begin(const std::shared_ptr<Source>& source, std::shared_ptr<const Expr> expr);
  void replace(std::shared_ptr<const Expr> expr) { expr_ = std::move(expr); }

 private:
  friend class Computation;
  friend class SingleComputation;
  /// Marks the Source as computed in `memory`. Requires the registry's lock. The expression is moved to `dropped`,
  /// which must be destroyed after the lock is released.
  void finish(std::shared_ptr<Storage> memory, std::shared_ptr<const Expr>& dropped, Substitution& above);
  const std::shared_ptr<Storage>& collect(const char* rule, std::span<const std::shared_ptr<Source>> siblings,
                                          const CachedExpression* repeated, const Expr* single);
  Device device_;
  DType dtype_ = DType::f32;
  std::uint64_t recording_ = 0;
  std::atomic<bool> computed_ = false;
  std::shared_ptr<Storage> storage_;        ///< Set before `computed_` and not changed afterwards.
  std::uint64_t writes_ = 0;                ///< The storage's write count when the result was computed.
  std::shared_ptr<const Expr> expr_;        ///< while pending
  const PendingWork* computing_ = nullptr;  ///< The computation of the result; protected by the registry's lock.
};

/// A fast path for a Source that is pending on a single operation on memory and scalars. It needs no graph traversal.
class SingleComputation final : public PendingWork {
 public:
  /// Claims `root` if it has this form, is not part of a recording, and is not being computed by another thread.
  explicit SingleComputation(Source& root);
  ~SingleComputation() { release(); }
  SingleComputation(const SingleComputation&) = delete;
  SingleComputation& operator=(const SingleComputation&) = delete;

  explicit operator bool() const { return begun(); }                             ///< True if the claim succeeded.
  const std::shared_ptr<const Expr>& expression() const { return root_.expr_; }  ///< Does not change while claimed.
  void release();                                   ///< Releases the claim. The source remains pending.
  void computed(std::shared_ptr<Storage> storage);  ///< Call after the launch. `storage` contains the result.

 private:
  bool reads(const Storage& storage) const override;
  void release_claims();  ///< Requires the lock.
  Source& root_;
  PendingRegistry& books_;
};

/// An operation on terms that writes to existing memory.
struct Write {
  StridedView target;
  ir::Op op;
  std::uint8_t sub;
  std::span<const Term> terms;
};

/// Computes a graph of expressions in one kernel. It collects the graph, claims the results that the kernel will write,
/// and notifies waiting threads when done. If several threads need the same result, one thread computes it and the
/// others wait without holding a lock.
class Computation final : public PendingWork {
 public:
  explicit Computation(Device device) : device_(device), books_(PendingRegistry::of(device)) {}
  ~Computation() { release(); }
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  // Each `collect` returns nodes of `fused()`. Values that are not part of this thread's current recording are computed
  // first and become inputs, so that a replay does not recompute them. `donated` are arrays that the caller is about to
  // release; their references to pending results are ignored. After collection, writers of the inputs wait for this
  // computation.
  int collect(const Term& term, std::span<const Array> donated);
  std::vector<int> collect(std::span<const Write> writes, std::span<const Array> donated);
  /// Returns nullopt if another thread was faster, or if this thread is already computing `root`. `siblings` are
  /// claimed together with `root`, up to the kernel's size limit.
  std::optional<int> collect(Source& root, std::span<const std::shared_ptr<Source>> siblings);
  const Expr& root() const { return *root_expr_; }
  Fused& fused() { return *fused_; }

  /// True if arrays refer to any of the collected results other than the root.
  bool shared() const { return !claims_.empty(); }
  /// Releases the claims. Claimed results remain pending. Call it after the launch, or if there is no launch.
  void release();
  /// Makes the claimed results other than the root outputs of the kernel.
  void add_outputs(const Shape& shape);
  /// Call after the launch: the claimed results are in memory. `storage` contains the result of the root.
  void computed(std::shared_ptr<Storage> storage = {});

 private:
  struct Visited {
    const Expr* expr;
    std::shared_ptr<Source> source;  ///< receives the result of the expression; null if no array needs it
    int node;
  };
  struct Claim {
    std::shared_ptr<Source> source;
    std::shared_ptr<const Expr> expr;
    int node;
    std::shared_ptr<Storage> storage = {};
    /// The expression of the source, which may have been replaced since the claim.
    std::shared_ptr<const Expr> dropped = {};
  };

  template <class F>
  std::optional<int> collect_until_complete(Source* root, F&& visit);
  // They return -1 if the traversal stopped at `blocked_` or `first_`.
  int visit(const Term& term);
  int visit(const std::shared_ptr<const Expr>& expr);
  int operation(ir::Op op, std::uint8_t sub, DType dtype, std::span<const Term> terms);
  bool visit_siblings(const Source& root, std::span<const std::shared_ptr<Source>> siblings);
  void claim(Source* root);
  bool is_only_donated(const std::shared_ptr<Source>& source) const;
  void release_claims();  ///< Requires the lock.
  bool reads(const Storage& storage) const override;

  const Device device_;
  PendingRegistry& books_;
  // Inline storage for a small expression.
  std::array<std::byte, 512> inline_buffer_;
  std::pmr::monotonic_buffer_resource arena_{inline_buffer_.data(), inline_buffer_.size()};
  std::optional<Fused> fused_;
  std::pmr::vector<Visited> visited_{&arena_};
  std::pmr::vector<Claim> claims_{&arena_};
  std::span<const Array> donated_;  ///< set during collection
  Source* root_ = nullptr;          ///< Also claimed. The caller keeps it alive.
  std::shared_ptr<const Expr> root_expr_, root_dropped_;
  std::shared_ptr<Source> blocked_;    ///< Another thread is computing it.
  std::shared_ptr<const Expr> first_;  ///< not part of the recording, so it must be computed first
  /// Sources that must not be destroyed under the lock in case these are the last references.
  std::pmr::vector<std::shared_ptr<Source>> kept_{&arena_};
};

void trace_flush(const Fused& fused, const char* rule);

/// The maximum number of operations in a kernel with several results.
constexpr std::size_t max_shared_operations = 256;

/// Computes operations on terms of one shape into existing memory, in one kernel. `donated` are the arrays of the
/// terms. They are released as soon as the computation is registered as a reader of its inputs.
void run_into(std::span<const Write> writes, const Shape& shape, Device device, std::span<Array> donated);

}  // namespace tessera::detail
