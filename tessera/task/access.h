// SPDX-License-Identifier: Apache-2.0
// What tasks do with a storage, and the order that follows: as if they ran one after the other as they were submitted.
#pragma once

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
#include "tessera/executor/executor.h"
#include "tessera/task/part.h"

namespace tessera {

/// What a task does with its data.
enum class Access : std::uint8_t {
  in,       ///< read
  out,      ///< written: what was there is not needed, and not copied
  inout,    ///< read and written
  commute,  ///< read and written, one at a time and in any order among those that say so
  reduce,   ///< combined with what others of the same operation compute, in any order
};
const char* to_string(Access mode);  ///< the access as one word: "inout"
/// True for all but `in`.
constexpr bool writes(Access mode) { return mode != Access::in; }

namespace detail {

/// The accesses to one storage that have not ended, by the parts they touch. Under its owner's lock.
class AccessOrder {
 public:
  /// What is called for each node; refers to the caller's function.
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

  /// Calls `after` for every node that an access of this kind has to wait for: it may name a node more than once. Parts
  /// that do not overlap are ordered too where one of them is written on another device: what is valid is known of
  /// whole storages.
  void conflicts(Access mode, const StoragePart& part, Device device, const NodeVisitor& after);
  /// The same, and from now on `node` is one of them: true, and a reference to it that the caller has counted is this
  /// one's. False for an empty part.
  bool add(executor::Node& node, Access mode, const StoragePart& part, Device device, const NodeVisitor& after);
  /// The same of the whole storage of `bytes`.
  bool add_full(executor::Node& node, Access mode, std::uint64_t bytes, Device device, const NodeVisitor& after) {
    if (entries_.size() != 1 || !entries_[0].is_full || !(entries_[0].device == device) || mode == Access::commute)
        [[unlikely]]
      return add_first_full(node, mode, bytes, device, after);
    conflicts_with_overlapping(entries_[0], mode, true, after);
    note(entries_[0], node, mode);
    return true;
  }
  /// Calls `f` for every node that meets the part, would conflict and has not ended.
  void for_each_pending(Access mode, const StoragePart& part, const NodeVisitor& f);
  /// Whether there is any.
  bool has_pending(Access mode, const StoragePart& part);
  /// For who owns it; nothing here takes it.
  executor::SpinLock& lock() const noexcept { return entries_.lock; }
  /// Parts that are remembered, and how many were compared with new ones so far; for tests.
  std::size_t parts() const { return entries_.size(); }
  std::uint64_t compared() const { return compared_; }
  /// Of those that commute, whatever their parts.
  executor::CommuteLock& commute_lock() {
    if (!commute_lock_) commute_lock_ = std::make_unique<executor::CommuteLock>();
    return *commute_lock_;
  }

 private:
  // With a reference to each. Few are kept inside, where no other line of memory is needed.
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
    /// With a reference that is this one's from now on.
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
    /// Ended, and none with a failure that nobody was told: it is for those that come after.
    bool is_finished() const noexcept;
    bool empty() const noexcept { return all_.empty(); }
    executor::Node* const* begin() const noexcept { return all_.begin(); }
    executor::Node* const* end() const noexcept { return all_.end(); }

   private:
    InlineVector<executor::Node*, inside> all_;
  };
  // Entries by the bytes between their first and last: of each length, rounded up to a power of four, those that may
  // meet a part begin in one range.
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
    /// f(entry) for each whose bytes meet those of the part.
    template <class F>
    void each(const StoragePart& part, F&& f) const;

   private:
    // The length's exponent, and where it begins: no storage has 2^56 bytes.
    static constexpr int begin_bits = 56;
    All all_;
    std::uint32_t lengths_ = 0;  // a bit for each exponent
  };
  enum class Listed : std::uint8_t { no, in_cell, in_cell_and_span, in_wide };
  struct Entry {
    Device device;
    Access mode = Access::in;  // of the writers
    bool open = false;         // more may commute with the writers
    bool overwritten = false;  // on another device: the writers' results are used no more
    bool is_full = false;      // it is all of the storage; else it may be
    Listed listed = Listed::no;
    Nodes<1> writers;  // the last one, or those that commute
    Nodes<2> readers;  // since, and where writers commute before
    std::uint64_t cell = 0;
    StoragePart part;
    Nodes<1> before;  // the writers that commuting ones come after
    Spans::At span;   // if it is listed in some
    bool idle() const noexcept { return writers.is_finished() && readers.ended() && before.is_finished(); }
  };
  // The first lies inside: most storages have but one, of all that they are.
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

    // On one line with what whole storages need of the first.
    mutable executor::SpinLock lock;

   private:
    std::uint32_t size_ = 0;
    Entry first_;
    std::vector<Entry> more_;
  };
  // Parts of a regular tiling meet only those of their own cell, and parts that lie in no cell.
  struct Tiling {
    int axes = 0;
    std::array<std::uint64_t, StoragePart::most_axes> stride{}, extent{};
  };
  static constexpr std::uint64_t no_cell = ~std::uint64_t{0};
  static constexpr std::size_t few = 64;           // entries that are remembered, ended or not
  static constexpr std::size_t most_in_cell = 16;  // entries, before their spans are looked at instead

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
  Device device_;  // of all entries, unless:
  bool several_devices_ = false;
  // Where there is more than one entry:
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> cells_;
  Spans wide_;   // entries of no cell
  Spans tiled_;  // the others, once a part of no cell is compared with them
  bool tiled_in_use_ = false;
  Tiling tiling_;
  std::vector<std::uint32_t> near_;  // what find_near found, the last one first
  std::size_t clean_at_ = few;
  std::uint64_t compared_ = 0;
  std::unique_ptr<executor::CommuteLock> commute_lock_;
};

}  // namespace detail
}  // namespace tessera
