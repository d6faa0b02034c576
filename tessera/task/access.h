// SPDX-License-Identifier: Apache-2.0
// What tasks do with a storage, and the order that follows: as if they ran one after the other as they were submitted.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tessera/base/inline_vector.h"
#include "tessera/base/spin_lock.h"
#include "tessera/device/device.h"
#include "tessera/executor/executor.h"
#include "tessera/executor/turn.h"
#include "tessera/task/part.h"

namespace tessera {

enum class Access : std::uint8_t {
  in,       ///< read
  out,      ///< written: what was there is not needed, and not copied
  inout,    ///< read and written
  commute,  ///< read and written, one at a time and in any order among those that say so
  reduce,   ///< combined with what others of the same operation compute, in any order
};
const char* to_string(Access mode);
constexpr bool writes(Access mode) { return mode != Access::in; }

namespace detail {

/// The accesses to one storage that have not ended, by the parts they touch. Under its owner's lock.
class AccessOrder {
 public:
  /// What is called for each node; refers to the caller's function.
  class Each {
   public:
    template <class F>
    Each(const F& f) noexcept
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
  void conflicts(Access mode, const StoragePart& part, Device device, const Each& after);
  /// The same, and from now on `node` is one of them: true, and a reference to it that the caller has counted is this
  /// one's. False for an empty part.
  bool add(executor::Node& node, Access mode, const StoragePart& part, Device device, const Each& after);
  /// The same of the whole storage of `bytes`.
  bool add_whole(executor::Node& node, Access mode, std::uint64_t bytes, Device device, const Each& after) {
    if (entries_.size() != 1 || !entries_[0].whole || !(entries_[0].device == device) || mode == Access::commute)
        [[unlikely]]
      return add_first_whole(node, mode, bytes, device, after);
    conflicts_with_met(entries_[0], mode, true, after);
    note(entries_[0], node, mode);
    return true;
  }
  /// Whether any that would conflict has not ended.
  bool busy(Access mode, const StoragePart& part) const;
  /// For who owns it; nothing here takes it.
  executor::SpinLock& lock() const noexcept { return entries_.lock; }
  /// Parts that are remembered; for tests.
  std::size_t parts() const { return entries_.size(); }
  /// Of those that commute, whatever their parts.
  executor::Turn& turn() {
    if (!turn_) turn_ = std::make_unique<executor::Turn>();
    return *turn_;
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
    bool over() const noexcept;
    bool empty() const noexcept { return all_.empty(); }
    executor::Node* const* begin() const noexcept { return all_.begin(); }
    executor::Node* const* end() const noexcept { return all_.end(); }

   private:
    InlineVector<executor::Node*, inside> all_;
  };
  struct Entry {
    Device device;
    Access mode = Access::in;  // of the writers
    bool open = false;         // more may commute with the writers
    bool overwritten = false;  // on another device: the writers' results are used no more
    bool whole = false;        // it is all of the storage; else it may be
    Nodes<1> writers;          // the last one, or those that commute
    Nodes<2> readers;          // since, and where writers commute before
    std::uint64_t cell = 0;
    StoragePart part;
    Nodes<1> before;  // the writers that commuting ones come after
    bool idle() const noexcept { return writers.over() && readers.ended() && before.over(); }
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
  // Parts of a regular tiling meet only those of their own cell; others are compared with all.
  struct Tiling {
    int axes = 0;
    std::array<std::uint64_t, StoragePart::most_axes> stride{}, extent{};
  };
  static constexpr std::uint64_t no_cell = ~std::uint64_t{0};

  std::uint64_t cell_of(const StoragePart& part) const;
  bool add_first_whole(executor::Node& node, Access mode, std::uint64_t bytes, Device device, const Each& after);
  static void conflicts_with(const Entry& e, Access mode, const StoragePart& part, Device device, const Each& after);
  static void conflicts_with_met(const Entry& e, Access mode, bool meets, const Each& after) {
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
      note_commuting(e, node);
    } else {
      e.writers.clear(), e.readers.clear();
      if (!e.before.empty()) [[unlikely]]
        e.before.clear();
      e.writers.add(node);
      e.mode = mode, e.open = false, e.overwritten = false;
    }
  }
  static void note_commuting(Entry& e, executor::Node& node);
  template <class F>
  void for_each_near(const StoragePart& part, Device device, F&& f);
  Entry& entry_of(const StoragePart& part, Device device);
  void remove(std::size_t index);
  void clean();

  Entries entries_;
  Device device_;  // of all entries, unless:
  bool several_devices_ = false;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> cells_;
  std::vector<std::uint32_t> wide_;  // entries of no cell
  Tiling tiling_;
  std::size_t clean_at_ = 64;
  std::unique_ptr<executor::Turn> turn_;
};

}  // namespace detail
}  // namespace tessera
