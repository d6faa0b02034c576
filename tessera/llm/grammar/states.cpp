// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/states.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::grammar {
namespace {

constexpr std::size_t longest_copied_frame = 32;           // return addresses
constexpr std::size_t most_stored = std::size_t{1} << 24;  // items and return addresses; 128 MiB

}  // namespace

States::States(const Automaton& automaton)
    : automaton_(automaton), returns_(automaton.starts.size()), finished_(automaton.starts.size()) {
  reset();
}

void States::reset() {
  lists_.clear(), frames_.clear(), next_.clear(), flags_.clear(), after_return_.clear();
  state_of({});  // dead_state
  // These two frames return to their own end, so frames that do nothing else are the same.
  for (const FrameId frame : {root_frame, opaque_frame}) {
    const std::uint64_t address[] = {pack(frame, end_node)};
    frames_.intern(address);
  }
}

StateId States::start() {
  const std::uint64_t first[] = {pack(root_frame, automaton_.starts[automaton_.root])};
  return state_of(closure(first));
}

StateId States::compute_step(StateId state, std::uint8_t byte) {
  std::vector<std::uint64_t> items;
  for (const std::uint64_t item : lists_[state]) {
    const Node& n = automaton_.nodes[node_of(item)];
    if (n.kind != Node::Kind::bytes) continue;
    for (const ByteEdge& e : automaton_.edges_of(n))
      if (e.first <= byte && byte <= e.last) items.push_back(pack(frame_of(item), e.to));
  }
  const StateId to = items.empty() ? dead_state : state_of(closure(items));
  next_[std::size_t{state} * automaton_.classes + automaton_.byte_class[byte]] = to;
  return to;
}

StateId States::state_of(std::vector<std::uint64_t> items) {
  std::ranges::sort(items);
  items.erase(std::ranges::unique(items).begin(), items.end());
  const StateId id = lists_.intern(items);
  if (id < flags_.size()) return id;
  std::uint8_t flags = 0;
  for (const std::uint64_t item : items)
    flags |= node_of(item) != end_node ? can_read : frame_of(item) == root_frame ? can_end : can_leave;
  flags_.push_back(flags);
  next_.resize(next_.size() + automaton_.classes, items.empty() ? dead_state : unknown);
  if (stored() > most_stored) refuse();
  return id;
}

std::vector<std::uint64_t> States::closure(std::span<const std::uint64_t> items) {
  work_.clear(), seen_.clear(), called_.clear();
  std::vector<std::uint64_t> out;
  for (const std::uint64_t item : items) push(item);
  while (!work_.empty()) {
    const std::uint64_t item = work_.back();
    work_.pop_back();
    const FrameId frame = frame_of(item);
    const Node& n = automaton_.nodes[node_of(item)];
    switch (n.kind) {
      case Node::Kind::bytes: out.push_back(item); break;
      case Node::Kind::split:
        for (const NodeId to : automaton_.targets_of(n)) push(pack(frame, to));
        break;
      case Node::Kind::call:
        call(n.first, n.last, frame);
        if (automaton_.nullable[n.first]) push(pack(frame, n.last));
        break;
      case Node::Kind::end:
        // A rule that ends in a frame that was created just now is nullable; its callers do not wait for it.
        if (frame <= opaque_frame)
          out.push_back(item);
        else if (frame < created)
          for (const std::uint64_t address : frames_[frame]) push(address);
    }
  }
  // The callers of a rule are finished before the rule.
  std::ranges::sort(called_, {}, [&](std::uint32_t r) { return automaton_.rank[r]; });
  for (const std::uint32_t r : called_) finished_[r] = finish_frame(r);
  for (std::uint64_t& item : out)
    if (frame_of(item) >= created) item = pack(finished_[frame_of(item) - created], node_of(item));
  return out;
}

void States::push(std::uint64_t item) {
  if (!seen_.insert(item).second) return;
  if (seen_.size() > 4 * most_items) refuse();
  work_.push_back(item);
}

void States::call(std::uint32_t r, NodeId next, FrameId frame) {
  const std::uint64_t start = pack(created + r, automaton_.starts[r]);
  if (!seen_.contains(start)) {
    called_.push_back(r);
    returns_[r].clear();
    push(start);
  }
  returns_[r].push_back(pack(frame, next));
}

FrameId States::finish_frame(std::uint32_t r) {
  std::vector<std::uint64_t> addresses;
  for (const std::uint64_t address : returns_[r]) {
    FrameId frame = frame_of(address);
    if (frame >= created) frame = finished_[frame - created];
    // A call at the end of a rule returns to the callers of this rule, so that lists that are written as right
    // recursion do not need a longer stack for each element. Long frames are not copied: in ambiguous grammars, they
    // could grow with each call.
    if (node_of(address) == end_node && frame > opaque_frame && frames_[frame].size() <= longest_copied_frame)
      addresses.insert(addresses.end(), frames_[frame].begin(), frames_[frame].end());
    else
      addresses.push_back(pack(frame, node_of(address)));
  }
  std::ranges::sort(addresses);
  addresses.erase(std::ranges::unique(addresses).begin(), addresses.end());
  if (addresses.size() > most_items) refuse();
  return frames_.intern(addresses);
}

std::vector<States::Group> States::groups(StateId state) {
  const std::vector<std::uint64_t> items(lists_[state].begin(), lists_[state].end());
  std::vector<Group> out;
  for (std::size_t i = 0; i < items.size();) {
    const FrameId frame = frame_of(items[i]);
    std::vector<std::uint64_t> local;
    for (; i < items.size() && frame_of(items[i]) == frame; ++i)
      if (node_of(items[i]) != end_node) local.push_back(pack(opaque_frame, node_of(items[i])));
    if (!local.empty()) out.push_back({frame, state_of(std::move(local))});
  }
  return out;
}

StateId States::after_return(FrameId frame) {
  if (const auto at = after_return_.find(frame); at != after_return_.end()) return at->second;
  const std::vector<std::uint64_t> addresses(frames_[frame].begin(), frames_[frame].end());
  return after_return_[frame] = state_of(closure(addresses));
}

StateId States::compact(StateId keep) {
  std::vector<std::uint64_t> items(lists_[keep].begin(), lists_[keep].end());
  // A frame is created after the frames below it, so it has a greater id.
  std::vector<bool> reached(frames_.size());
  for (const std::uint64_t item : items) reached[frame_of(item)] = true;
  for (std::size_t f = frames_.size(); f-- > opaque_frame + 1;)
    if (reached[f])
      for (const std::uint64_t address : frames_[static_cast<FrameId>(f)]) reached[frame_of(address)] = true;
  std::vector<std::pair<FrameId, std::vector<std::uint64_t>>> kept;
  for (FrameId f = opaque_frame + 1; f < frames_.size(); ++f)
    if (reached[f]) kept.emplace_back(f, std::vector<std::uint64_t>(frames_[f].begin(), frames_[f].end()));
  reset();
  std::unordered_map<FrameId, FrameId> moved = {{root_frame, root_frame}, {opaque_frame, opaque_frame}};
  const auto move = [&](std::vector<std::uint64_t>& list) {
    for (std::uint64_t& item : list) item = pack(moved.at(frame_of(item)), node_of(item));
    std::ranges::sort(list);
  };
  for (auto& [frame, addresses] : kept) {
    move(addresses);
    moved[frame] = frames_.intern(addresses);
  }
  move(items);
  return state_of(std::move(items));
}

void States::refuse() {
  fail<ArgumentError>({.operation = "grammar",
                       .with = {{"maximum number of alternatives", std::to_string(most_items)}},
                       .wrong = "the grammar is too ambiguous: too many alternatives match the text so far",
                       .remedy = "Use fewer nested or optional repetitions"});
}

}  // namespace tessera::grammar
