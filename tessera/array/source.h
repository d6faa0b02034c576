// SPDX-License-Identifier: Apache-2.0
// What arrays hold: an expression that is computed when needed, and its memory from then on. Inside array/ only.
// Written is every expression of a graph that some array still holds, and no other.
#pragma once

#include <atomic>
#include <optional>

#include "tessera/array/array.h"
#include "tessera/array/expression.h"

namespace tessera::detail {

class Source final : public PendingResult {
  struct Private {};

 public:
  explicit Source(Private) {}
  static std::shared_ptr<Source> of(std::shared_ptr<Storage> storage, DType dtype);
  /// What arrays hold of an expression; a new one if none does.
  static std::shared_ptr<Source> of(const std::shared_ptr<const Expr>& expr);
  /// One whose expression is set later.
  static std::shared_ptr<Source> pending_on(Device device, DType dtype);

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  bool computed() const { return computed_.load(std::memory_order_acquire); }
  bool pending() const { return !computed(); }
  /// Recorder::number() when it was made, or that of its expression: what depends on something of a recording is part
  /// of it, whichever thread deferred it.
  std::uint64_t recording() const { return recording_; }
  /// The memory; computes first if pending. `rule` says why, for the trace. Of those `siblings` it, of one device, what
  /// is pending and of one shape with it is computed by the same kernel, as far as that may grow.
  const std::shared_ptr<Storage>& storage(const char* rule, std::span<const std::shared_ptr<Source>> siblings = {});
  const std::shared_ptr<Storage>& memory() const { return storage_; }  ///< of one that is computed
  /// Its memory, which it computed, has been written in place since.
  bool overwritten() const { return storage_->writes() != writes_; }
  bool flush() override;

  // Under the books' lock:
  const std::shared_ptr<const Expr>& expression() const { return expr_; }  ///< null once computed
  /// Pending on it from now on.
  static void begin(const std::shared_ptr<Source>& source, std::shared_ptr<const Expr> expr);
  void replace(std::shared_ptr<const Expr> expr) { expr_ = std::move(expr); }

 private:
  friend class Computation;
  friend class SingleComputation;
  /// Under the books' lock: it is in `memory`. `dropped` gets its expression, which must go after the lock.
  void finish(std::shared_ptr<Storage> memory, std::shared_ptr<const Expr>& dropped, Substitution& above);
  const std::shared_ptr<Storage>& collect(const char* rule, std::span<const std::shared_ptr<Source>> siblings,
                                          const CachedExpression* repeated, const Expr* single);
  Device device_;
  DType dtype_ = DType::f32;
  std::uint64_t recording_ = 0;
  std::atomic<bool> computed_ = false;
  std::shared_ptr<Storage> storage_;        ///< set before `computed_`, and never changed then
  std::uint64_t writes_ = 0;                ///< of the storage, by then
  std::shared_ptr<const Expr> expr_;        ///< while pending
  const PendingWork* computing_ = nullptr;  ///< which will write it; under the books' lock
};

/// Computes what is pending on one operation over memory and scalars, without collecting it.
class SingleComputation final : public PendingWork {
 public:
  /// Claims `root` if it is so, part of no recording, and no thread computes it.
  explicit SingleComputation(Source& root);
  ~SingleComputation() { release(); }
  SingleComputation(const SingleComputation&) = delete;
  SingleComputation& operator=(const SingleComputation&) = delete;

  explicit operator bool() const { return begun(); }                             ///< whether it is claimed
  const std::shared_ptr<const Expr>& expression() const { return root_.expr_; }  ///< does not change while it is
  void release();                                   ///< gives up the claim: it stays pending
  void computed(std::shared_ptr<Storage> storage);  ///< the operation was launched, into this memory

 private:
  bool reads(const Storage& storage) const override;
  void release_claims();  ///< under the lock
  Source& root_;
  PendingRegistry& books_;
};

/// An operation over terms whose result goes to memory that exists.
struct Write {
  StridedView target;
  ir::Op op;
  std::uint8_t sub;
  std::span<const Term> terms;
};

/// Computes a graph of expressions in one kernel: collects it, claims what the kernel will write, and tells when that
/// is done. Of several threads that need the same, one computes it and the others wait, without holding anything.
class Computation final : public PendingWork {
 public:
  explicit Computation(Device device) : device_(device), books_(PendingRegistry::of(device)) {}
  ~Computation() { release(); }
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  // Each gives the node of `fused()` that was asked for. What is no part of the recording that this thread makes is
  // computed before, and is an input: a replay does not compute it again. `donated`: arrays that the caller is about to
  // give up, whose own hold on what is pending does not count; whoever writes what they read waits for this from now
  // on.
  int collect(const Term& term, std::span<const Array> donated);
  std::vector<int> collect(std::span<const Write> writes, std::span<const Array> donated);
  /// Nothing if another thread was quicker, or this thread is about to compute it. Those `siblings` it are claimed with
  /// it as far as the kernel may grow.
  std::optional<int> collect(Source& root, std::span<const std::shared_ptr<Source>> siblings);
  const Expr& root() const { return *root_expr_; }
  Fused& fused() { return *fused_; }

  /// Whether arrays hold any part of what was collected, but for the root.
  bool shared() const { return !claims_.empty(); }
  /// The kernel was launched, or will not be. Gives up the claims: what is claimed stays pending.
  void release();
  /// Makes what is claimed, but for the root, outputs of the kernel.
  void add_outputs(const Shape& shape);
  /// The kernel was launched: the claimed results are in memory, and the root's is in `storage`.
  void computed(std::shared_ptr<Storage> storage = {});

 private:
  struct Visited {
    const Expr* expr;
    std::shared_ptr<Source> source;  ///< empty: no array holds it
    int node;
  };
  struct Claim {
    std::shared_ptr<Source> source;
    std::shared_ptr<const Expr> expr;
    int node;
    std::shared_ptr<Storage> storage = {};
    std::shared_ptr<const Expr> dropped = {};  ///< what the source held, which may have been replaced meanwhile
  };

  template <class F>
  std::optional<int> collect_until_complete(Source* root, F&& visit);
  // -1: the walk stopped, at `blocked_` or `first_`.
  int visit(const Term& term);
  int visit(const std::shared_ptr<const Expr>& expr);
  int operation(ir::Op op, std::uint8_t sub, DType dtype, std::span<const Term> terms);
  bool visit_siblings(const Source& root, std::span<const std::shared_ptr<Source>> siblings);
  void claim(Source* root);
  bool is_only_donated(const std::shared_ptr<Source>& source) const;
  void release_claims();  ///< under the lock
  bool reads(const Storage& storage) const override;

  const Device device_;
  PendingRegistry& books_;
  // Memory for what a small expression needs.
  std::array<std::byte, 512> inline_buffer_;
  std::pmr::monotonic_buffer_resource arena_{inline_buffer_.data(), inline_buffer_.size()};
  std::optional<Fused> fused_;
  std::pmr::vector<Visited> visited_{&arena_};
  std::pmr::vector<Claim> claims_{&arena_};
  std::span<const Array> donated_;  ///< while collecting
  Source* root_ = nullptr;          ///< claimed, too; kept alive by the caller
  std::shared_ptr<const Expr> root_expr_, root_dropped_;
  std::shared_ptr<Source> blocked_;                          ///< another thread computes it
  std::shared_ptr<const Expr> first_;                        ///< no part of the recording
  std::pmr::vector<std::shared_ptr<Source>> kept_{&arena_};  ///< whose last references must not go under the lock
};

void trace_flush(const Fused& fused, const char* rule);

/// What one kernel may grow to where several results share it.
constexpr std::size_t max_shared_operations = 256;

/// Computes operations over terms of one shape into memory that exists, in one kernel. `donated`: the arrays that the
/// terms are of, which are given up once nobody needs to be told by them that they are read.
void run_into(std::span<const Write> writes, const Shape& shape, Device device, std::span<Array> donated);

}  // namespace tessera::detail
