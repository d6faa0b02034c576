// SPDX-License-Identifier: Apache-2.0
// The states of a running automaton. A state is a set of items, each of which is a node and the frame to return to. A
// frame is a set of return addresses, so stacks share their tails and stacks with equal tops are merged, as in a
// graph-structured stack (Tomita 1985). The number of items grows at most linearly with the text, even if it is
// ambiguous. Equal states have equal ids, and transitions are computed once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/llm/grammar/automaton.h"
#include "tessera/llm/grammar/interned_lists.h"

namespace tessera::grammar {

using StateId = std::uint32_t;
using FrameId = std::uint32_t;

inline constexpr StateId dead_state = 0;    ///< no text continues from here
inline constexpr FrameId root_frame = 0;    ///< of the root rule: when it returns, the text is complete
inline constexpr FrameId opaque_frame = 1;  ///< a frame whose returns are unknown (State::leaves)

/// States and their transitions, which are computed when they are first used. Not thread-safe.
class States {
 public:
  /// `automaton` must outlive the object.
  explicit States(const Automaton& automaton);

  /// The state before the first byte.
  StateId start();
  /// Returns the state after a byte; dead_state if no text of the grammar continues like this. Throws ArgumentError if
  /// there are more alternatives than `most_items`.
  StateId step(StateId state, std::uint8_t byte) {
    const StateId known = next_[std::size_t{state} * automaton_.classes + automaton_.byte_class[byte]];
    return known != unknown ? known : compute_step(state, byte);
  }
  /// True if the text can end in this state.
  bool accepts(StateId state) const { return flags_[state] & can_end; }
  /// True if the rule on top of an opaque frame can end in this state.
  bool leaves(StateId state) const { return flags_[state] & can_leave; }
  /// True if no byte can follow.
  bool is_final(StateId state) const { return !(flags_[state] & can_read); }

  /// The items of a state with the same frame.
  struct Group {
    FrameId frame;
    StateId local;  ///< these items, on an opaque frame
  };
  std::vector<Group> groups(StateId state);
  /// The state after the rule on top of this frame has ended.
  StateId after_return(FrameId frame);

  /// The number of stored states.
  std::size_t size() const { return lists_.size(); }
  /// True if so much is stored that it should be reduced by compact().
  bool is_large() const { return size() > 32'768 || stored() > std::size_t{1} << 22; }
  /// Forgets all states except for `keep`, and returns its new id.
  StateId compact(StateId keep);

 private:
  static constexpr StateId unknown = UINT32_MAX;
  enum Flag : std::uint8_t { can_end = 1, can_leave = 2, can_read = 4 };
  /// A node and a frame, or a return address and the frame below.
  static std::uint64_t pack(FrameId frame, NodeId node) { return std::uint64_t{frame} << 32 | node; }
  static NodeId node_of(std::uint64_t item) { return static_cast<NodeId>(item); }
  static FrameId frame_of(std::uint64_t item) { return static_cast<FrameId>(item >> 32); }

  void reset();
  std::size_t stored() const { return lists_.values() + frames_.values(); }
  StateId compute_step(StateId state, std::uint8_t byte);
  StateId state_of(std::vector<std::uint64_t> items);
  /// Replaces calls and returns by the nodes that read a byte, or end the text.
  std::vector<std::uint64_t> closure(std::span<const std::uint64_t> items);
  void push(std::uint64_t item);
  void call(std::uint32_t rule, NodeId next, FrameId frame);
  FrameId finish_frame(std::uint32_t rule);
  [[noreturn]] static void refuse();

  const Automaton& automaton_;
  InternedLists lists_;   ///< the items of each state, in ascending order
  InternedLists frames_;  ///< the return addresses of each frame, in ascending order
  std::vector<StateId> next_;
  std::vector<std::uint8_t> flags_;
  std::unordered_map<FrameId, StateId> after_return_;

  // Used by closure(). Frames that it creates have the id `created` + rule, until all their return addresses are known.
  static constexpr FrameId created = FrameId{1} << 31;
  std::vector<std::uint64_t> work_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<std::uint32_t> called_;                ///< rules with created frames
  std::vector<std::vector<std::uint64_t>> returns_;  ///< for each rule: the return addresses of its created frame
  std::vector<FrameId> finished_;                    ///< for each rule: the final id of its created frame
};

}  // namespace tessera::grammar
