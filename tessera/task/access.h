// SPDX-License-Identifier: Apache-2.0
// What tasks do with a storage, and the order that follows: as if they ran one after the other as they were submitted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tessera/base/inline_vector.h"
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
  using Each = std::function<void(executor::Node&, executor::Node::Dependency)>;

  /// Calls `after` for every node that an access of this kind has to wait for: it may name a node more than once. Parts
  /// that do not overlap are ordered too where one of them is written on another device: what is valid is known of
  /// whole storages.
  void conflicts(Access mode, const StoragePart& part, Device device, const Each& after);
  /// The same, and from now on `node` is one of them.
  void add(executor::Node& node, Access mode, const StoragePart& part, Device device, const Each& after);
  /// Whether any that would conflict has not ended.
  bool busy(Access mode, const StoragePart& part) const;
  /// Parts that are remembered; for tests.
  std::size_t parts() const { return entries_.size(); }
  /// Of those that commute, whatever their parts.
  executor::Turn& turn() {
    if (!turn_) turn_ = std::make_unique<executor::Turn>();
    return *turn_;
  }

 private:
  // With a reference to each. Few are kept inside, where no other line of memory is needed.
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
    void add(executor::Node& node) {
      if (all_.size() == all_.capacity()) forget_ended();
      all_.push_back(&node);
      node.keep();
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
    InlineVector<executor::Node*, 2> all_;
  };
  struct Entry {
    Device device;
    Access mode = Access::in;  // of the writers
    bool open = false;         // more may commute with the writers
    bool overwritten = false;  // on another device: the writers' results are used no more
    Nodes writers;             // the last one, or those that commute
    Nodes readers;             // since, and where writers commute before
    std::uint64_t cell = 0;
    StoragePart part;
    Nodes before;  // the writers that commuting ones come after
    bool idle() const noexcept { return writers.over() && readers.ended() && before.over(); }
  };
  // Parts of a regular tiling meet only those of their own cell; others are compared with all.
  struct Tiling {
    int axes = 0;
    std::array<std::uint64_t, StoragePart::most_axes> stride{}, extent{};
  };
  static constexpr std::uint64_t no_cell = ~std::uint64_t{0};

  std::uint64_t cell_of(const StoragePart& part) const;
  static void conflicts_with(const Entry& e, Access mode, const StoragePart& part, Device device, const Each& after);
  static void note(Entry& e, executor::Node& node, Access mode);
  template <class F>
  void for_each_near(const StoragePart& part, Device device, F&& f);
  Entry& entry_of(const StoragePart& part, Device device);
  void remove(std::size_t index);
  void clean();

  std::vector<Entry> entries_;
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
