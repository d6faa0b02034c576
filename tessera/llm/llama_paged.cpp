// SPDX-License-Identifier: Apache-2.0
// Steps of several sequences.
#include <algorithm>
#include <array>
#include <set>

#include "tessera/llm/paged_cache.h"
#include "tessera/llm/past.h"

namespace tessera {

using ops::most_grouped_tokens;

Array Llama::Past::store(std::size_t i, std::span<const Array> qkv, const ops::HeadOptions& heads) const {
  if (cache != nullptr) return ops::rotate_and_store(qkv, heads, position, cache->keys_[i], cache->values_[i]);
  const std::array<Array, 3> rotated = ops::rotate_heads(qkv, heads, position);
  ops::paged_store(pages->layer(i), rotated[1], rotated[2], *tokens);
  return rotated[0];
}

ops::LinearInput Llama::Past::attend(std::size_t i, const Array& queries, float scale, std::int64_t window, float cap,
                                     const std::optional<Array>& sinks, const std::optional<Array>& gates,
                                     const Weight& next) const {
  if (cache != nullptr && !gates)
    return ops::attention(queries, cache->keys_[i], cache->values_[i], position, scale, window, cap, sinks, next);
  Array seen = cache != nullptr ? tessera::attention(queries, cache->keys_[i], cache->values_[i], position, scale,
                                                     window, cap, sinks)
                                : ops::paged_attention(queries, pages->layer(i), *tokens, scale, window, cap, sinks);
  if (gates) seen = seen * *gates;
  return ops::LinearInput(seen.reshape({queries.shape(0), queries.shape(1) * queries.shape(2)}));
}

RecurrentStates::Layer& Llama::Past::recurrent(std::size_t i) const {
  return cache != nullptr ? cache->states_.layer(i) : pages->recurrent(i);
}

void Llama::check_pieces(std::span<const SequencePiece> pieces, const PagedCache& cache) const {
  std::set<const PagedCache::Sequence*> sequences;
  for (const SequencePiece& p : pieces) {
    const auto count = static_cast<std::int64_t>(p.tokens.size());
    if (count == 0) fail<ArgumentError>({.operation = "Llama::forward", .wrong = "a piece has no tokens"});
    check_vocabulary(p.tokens);
    if (!sequences.insert(p.sequence).second)
      fail<ArgumentError>({.operation = "Llama::forward", .wrong = "two pieces are of the same sequence"});
    if (!cache.can_append(*p.sequence, count))
      fail<ArgumentError>({.operation = "Llama::forward",
                           .with = {{"tokens", std::to_string(count)},
                                    {"in the sequence", std::to_string(p.sequence->length())},
                                    {"pages", std::to_string(p.sequence->pages())}},
                           .wrong = "the sequence has no pages of its own for the tokens",
                           .remedy = "Call PagedCache::reserve first"});
  }
}

namespace {

/// The tokens of a step on the host. Single tokens come first.
struct HostStep {
  std::vector<std::int32_t> ids, sequences, positions, tables, groups, wanted, states, ranges;
  std::int64_t width = 1, single = 0;

  HostStep(std::span<const SequencePiece> pieces, std::span<const std::span<const std::int32_t>> pages,
           std::span<const std::pair<std::int32_t, std::int32_t>> slots) {
    for (const auto& of_piece : pages) width = std::max(width, static_cast<std::int64_t>(of_piece.size()));
    tables.resize(pieces.size() * static_cast<std::size_t>(width));
    std::vector<std::int32_t> last(pieces.size());
    for (const bool of_one : {true, false})
      for (std::size_t s = 0; s < pieces.size(); ++s) {
        if ((pieces[s].tokens.size() == 1) != of_one) continue;
        std::ranges::copy(pages[s], tables.begin() + static_cast<std::ptrdiff_t>(s) * width);
        add(pieces[s], static_cast<std::int32_t>(s));
        last[s] = static_cast<std::int32_t>(ids.size()) - 1;
      }
    for (std::size_t s = 0; s < pieces.size(); ++s) {
      if (pieces[s].logits) wanted.push_back(last[s]);
      const auto count = static_cast<std::int32_t>(pieces[s].tokens.size());
      const auto [before, after] = slots[s];
      ranges.insert(ranges.end(), {last[s] - count + 1, count, before, after});
      for (std::int32_t i = last[s] - count + 1; pieces[s].states != nullptr && i <= last[s]; ++i) states.push_back(i);
    }
  }
  ops::PagedTokens on(Device device) const {
    const auto array = [&](const std::vector<std::int32_t>& v, Shape shape) {
      return Array::from(std::span<const std::int32_t>(v), std::move(shape), device);
    };
    const auto count = static_cast<std::int64_t>(ids.size());
    ops::PagedTokens tokens{array(tables, {static_cast<std::int64_t>(tables.size()) / width, width}),
                            array(sequences, {count}), array(positions, {count}), single};
    if (!groups.empty()) tokens.groups = array(groups, {static_cast<std::int64_t>(groups.size()) / 2, 2});
    return tokens;
  }

 private:
  void add(const SequencePiece& piece, std::int32_t sequence) {
    const auto count = static_cast<std::int64_t>(piece.tokens.size());
    if (count == 1) ++single;
    for (std::int64_t i = 0; i < count; i += most_grouped_tokens)
      if (count > 1) {
        groups.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(ids.size()) + i));
        groups.push_back(static_cast<std::int32_t>(std::min(most_grouped_tokens, count - i)));
      }
    for (std::int64_t i = 0; i < count; ++i) {
      ids.push_back(piece.tokens[static_cast<std::size_t>(i)]);
      sequences.push_back(sequence);
      positions.push_back(static_cast<std::int32_t>(piece.sequence->length() + i));
    }
  }
};

}  // namespace

Array Llama::forward(std::span<const SequencePiece> pieces, PagedCache& cache) const {
  check_pieces(pieces, cache);
  std::vector<std::span<const std::int32_t>> pages;
  std::vector<std::pair<std::int32_t, std::int32_t>> slots;
  for (const SequencePiece& p : pieces)
    pages.push_back(PagedCache::pages_of(*p.sequence)), slots.push_back(PagedCache::slots_of(*p.sequence));
  const HostStep step(pieces, pages, slots);
  const auto wanted = static_cast<std::int64_t>(step.wanted.size());
  if (pieces.empty()) return Array::zeros({0, config_.vocabulary}, DType::f32, devices_.back());
  Array x = Array::from(std::span<const std::int32_t>(step.ids), {}, device());
  Past::States states;
  for (const Part& part : parts_) {
    const ops::PagedTokens tokens = step.on(part.device);
    std::optional<Array> ranges;
    if (config_.is_recurrent())
      ranges = Array::from(std::span<const std::int32_t>(step.ranges), Shape{std::ssize(pieces), 4}, part.device);
    Past past(tokens, cache, std::move(ranges));
    WantedLogits logits;
    if (part.end == devices_.size()) {
      logits.rows = Array::from(std::span<const std::int32_t>(step.wanted), Shape{wanted}, part.device);
      if (!step.states.empty()) {
        states.rows = Array::from(std::span<const std::int32_t>(step.states), {}, part.device);
        past.states = &states;
      }
    }
    x = run_part(part, x.to(part.device), past, logits);
  }
  x.eval();
  if (!step.states.empty()) {
    const std::vector<float> values = states.values.to_vector<float>();
    auto at = values.begin();
    for (const SequencePiece& p : pieces) {
      if (p.states == nullptr) continue;
      const auto count = std::ssize(p.tokens) * config_.width;
      p.states->assign(at, at + count);
      at += count;
    }
  }
  for (const SequencePiece& p : pieces) cache.append(*p.sequence, p.tokens);
  return x;
}

}  // namespace tessera
