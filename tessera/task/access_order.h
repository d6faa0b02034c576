// SPDX-License-Identifier: Apache-2.0
// The dependencies that follow from accesses to one storage: the result is as if the tasks ran in submission order.
// Internal.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/base/inline_vector.h"
#include "tessera/base/spin_lock.h"
#include "tessera/device/device.h"
#include "tessera/executor/commute_lock.h"
#include "tessera/executor/node.h"
#include "tessera/executor/slab.h"
#include "tessera/task/access.h"
#include "tessera/task/part.h"

namespace tessera {

namespace detail {

/// Tracks the unfinished accesses to one storage, indexed by the part that each of them covers. Guarded by lock().
class AccessOrder {
 public:
  /// A non-owning reference to a function that is called for each dependency.
  class NodeVisitor {
   public:
    template <class F>
    NodeVisitor(const F& f) noexcept
        : f_(&f), call_([](const void* g, executor::Node& node, executor::Node::Dependency kind) {
            (*static_cast<const F*>(g))(node, kind);
          }) {}
    void operator()(executor::Node& node, executor::Node::Dependency kind) const { call_(f_, node, kind); }

   private:
    const void* f_;
    void (*call_)(const void*, executor::Node&, executor::Node::Dependency);
  };

  /// Calls `after` for every node that a new access with this mode has to wait for. The same node may be passed several
  /// times. Parts that do not overlap are also ordered if one of them is written on another device, because validity is
  /// tracked per storage.
  void conflicts(Access mode, const StoragePart& part, Device device, const NodeVisitor& after);
  /// Like conflicts(), and records `node` as an access to the part. Returns true and takes over one reference, which
  /// the caller has already counted. Returns false if the part is empty.
  bool add(executor::Node& node, Access mode, const StoragePart& part, Device device, const NodeVisitor& after);
  /// Like add(), for a whole storage of `bytes` bytes.
  bool add_full(executor::Node& node, Access mode, std::uint64_t bytes, Device device, const NodeVisitor& after) {
    if (entries_.size() != 1 || !entries_[0].is_full || !(entries_[0].device == device) || mode == Access::commute)
        [[unlikely]]
      return add_first_full(node, mode, bytes, device, after);
    conflicts_with_overlapping(entries_[0], mode, true, after);
    note(entries_[0], node, mode);
    return true;
  }
  /// Calls `f` for every unfinished node with an access that overlaps the part and conflicts with `mode`.
  void for_each_pending(Access mode, const StoragePart& part, const NodeVisitor& f);
  /// Returns true if for_each_pending() would call `f`.
  bool has_pending(Access mode, const StoragePart& part);
  /// The lock that guards this object. Member functions do not lock it; the caller must.
  executor::SpinLock& lock() const noexcept { return entries_.lock; }
  /// For tests: the number of recorded parts, and the number of comparisons of a recorded part with a new one.
  std::size_t parts() const { return entries_.size(); }
  std::uint64_t compared() const { return compared_; }
  /// The lock that all commuting tasks of this storage share, regardless of the parts that they access.
  executor::CommuteLock& commute_lock() {
    if (!commute_lock_) commute_lock_ = std::make_unique<executor::CommuteLock>();
    return *commute_lock_;
  }

 private:
  // Nodes, each with a counted reference. The first ones are stored inline to avoid a cache miss.
  template <std::size_t inside>
  class Nodes {
   public:
    Nodes() = default;
    Nodes(Nodes&& other) noexcept : all_(std::move(other.all_)) {}
    Nodes& operator=(Nodes&& other) noexcept {
      clear();
      all_ = std::move(other.all_);
      return *this;
    }
    ~Nodes() { clear(); }
    /// Takes over one reference to `node`.
    void add(executor::Node& node) {
      if (all_.size() == all_.capacity()) forget_ended();
      all_.push_back(&node);
    }
    void clear() noexcept {
      for (executor::Node* n : all_) n->drop();
      all_.clear();
    }
    void forget_ended() noexcept;
    bool ended() const noexcept;
    /// Returns true if all nodes have ended and all failures were observed. An unobserved failure must still reach
    /// later tasks.
    bool is_finished() const noexcept;
    bool empty() const noexcept { return all_.empty(); }
    executor::Node* const* begin() const noexcept { return all_.begin(); }
    executor::Node* const* end() const noexcept { return all_.end(); }

   private:
    InlineVector<executor::Node*, inside> all_;
  };
  // Entries indexed by byte range. Lengths are rounded up to a power of four. For each length, all entries that can
  // overlap a part have keys in one contiguous range.
  class Spans {
   public:
    struct To {
      std::uint64_t end;
      std::uint32_t entry;
    };
    using All =
        std::multimap<std::uint64_t, To, std::less<>, executor::slab::Allocator<std::pair<const std::uint64_t, To>>>;
    using At = All::iterator;
    At add(const StoragePart& part, std::uint32_t entry);
    void erase(At at) { all_.erase(at); }
    void clear() noexcept { all_.clear(), lengths_ = 0; }
    /// Calls f(entry) for each entry with a byte range that overlaps the part's byte range.
    template <class F>
    void each(const StoragePart& part, F&& f) const;

   private:
    // A key contains the exponent of the length in the upper bits and the first byte in the lower bits. No storage has
    // 2^56 bytes.
    static constexpr int begin_bits = 56;
    All all_;
    std::uint32_t lengths_ = 0;  // one bit for each exponent that occurs
  };
  enum class Listed : std::uint8_t { no, in_cell, in_cell_and_span, in_wide };
  struct Entry {
    Device device;
    Access mode = Access::in;  // mode of the writers
    bool open = false;         // more tasks may join the commuting writers
                        // The storage was overwritten on another device, so the writers' results are no longer used.
    bool overwritten = false;
    bool is_full = false;  // true only if the entry is known to cover the whole storage
    Listed listed = Listed::no;
    Nodes<1> writers;  // the last writer, or all commuting writers
    Nodes<2> readers;  // readers since the last writer, or readers before the commuting writers
    std::uint64_t cell = 0;
    StoragePart part;
    Nodes<1> before;  // the writers before the commuting writers
    Spans::At span;   // valid if `listed` is in_cell_and_span or in_wide
    bool idle() const noexcept { return writers.is_finished() && readers.ended() && before.is_finished(); }
  };
  // The first entry is stored inline, because most storages have only one entry, for the whole storage.
  class Entries {
   public:
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    Entry& operator[](std::size_t i) noexcept { return i == 0 ? first_ : more_[i - 1]; }
    const Entry& operator[](std::size_t i) const noexcept { return i == 0 ? first_ : more_[i - 1]; }
    Entry& add() {
      if (size_ > 0) more_.emplace_back();
      return (*this)[size_++];
    }
    void pop() noexcept {
      if (--size_ > 0)
        more_.pop_back();
      else
        first_ = Entry{};
    }

    // Placed in the same cache line as those fields of the first entry that are used for accesses to whole storages.
    mutable executor::SpinLock lock;

   private:
    std::uint32_t size_ = 0;
    Entry first_;
    std::vector<Entry> more_;
  };
  // A regular tiling of a storage. A part that fits into one cell can only overlap parts in the same cell and parts
  // that are in no cell.
  struct Tiling {
    int axes = 0;
    std::array<std::uint64_t, StoragePart::most_axes> stride{}, extent{};
  };
  static constexpr std::uint64_t no_cell = ~std::uint64_t{0};
  static constexpr std::size_t few = 64;           // below this number of entries, ended entries are not removed
  static constexpr std::size_t most_in_cell = 16;  // if a cell has more entries, the spans are searched instead

  std::uint64_t cell_of(const StoragePart& part) const;
  bool add_first_full(executor::Node& node, Access mode, std::uint64_t bytes, Device device, const NodeVisitor& after);
  static void conflicts_with(const Entry& e, Access mode, const StoragePart& part, Device device,
                             const NodeVisitor& after);
  static void conflicts_with_overlapping(const Entry& e, Access mode, bool meets, const NodeVisitor& after) {
    using Dependency = executor::Node::Dependency;
    const bool uses = meets && mode != Access::out && !e.overwritten;
    for (executor::Node* const n : e.writers) after(*n, uses ? Dependency::result : Dependency::order);
    if (writes(mode))
      for (executor::Node* const n : e.readers) after(*n, Dependency::order);
  }
  static void note(Entry& e, executor::Node& node, Access mode) {
    if (mode == Access::in) {
      e.readers.add(node);
      e.open = false;
    } else if (mode == Access::commute) {
      record_commuting(e, node);
    } else {
      e.writers.clear(), e.readers.clear();
      if (!e.before.empty()) [[unlikely]]
        e.before.clear();
      e.writers.add(node);
      e.mode = mode, e.open = false, e.overwritten = false;
    }
  }
  static void record_commuting(Entry& e, executor::Node& node);
  void find_near(const StoragePart& part, Device device);
  std::uint32_t new_entry(const StoragePart& part, Device device);
  void list(std::uint32_t index);
  void unlist_all() noexcept;
  void remove(std::uint32_t index);
  void clean();

  Entries entries_;
  Device device_;  // device of all entries, unless several_devices_ is set
  bool several_devices_ = false;
  // Used only if there are several entries.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> cells_;
  Spans wide_;   // entries that are in no cell
  Spans tiled_;  // all other entries; filled when a part without a cell is first compared with them
  bool tiled_in_use_ = false;
  Tiling tiling_;
  std::vector<std::uint32_t> near_;  // result of find_near(), in descending order
  std::size_t clean_at_ = few;
  std::uint64_t compared_ = 0;
  std::unique_ptr<executor::CommuteLock> commute_lock_;
};

}  // namespace detail
}  // namespace tessera
