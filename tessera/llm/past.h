// SPDX-License-Identifier: Apache-2.0
// What a step of a model needs of the tokens before it: their positions, and the cache of their keys and values.
// Internal.
#pragma once

#include "tessera/llm/llama.h"
#include "tessera/llm/paged_cache.h"
#include "tessera/ops/transformer_layer.h"

namespace tessera {

struct Llama::Past {
  /// Consecutive tokens of one text. `r` is needed for models with recurrent layers.
  Past(const Position& p, KeyValueCache& c, std::optional<Array> r = {})
      : position(p), cache(&c), ranges(std::move(r)) {}
  /// Tokens of several sequences.
  Past(const ops::PagedTokens& t, PagedCache& p, std::optional<Array> r = {})
      : position(Position::each(t.positions)), tokens(&t), pages(&p), ranges(std::move(r)) {}

  const Position position;
  KeyValueCache* const cache = nullptr;
  const ops::PagedTokens* const tokens = nullptr;
  PagedCache* const pages = nullptr;
  const std::optional<Array> ranges;  ///< the tokens and slots of each sequence; see ops/recurrent.h
  /// States after the last norm.
  struct States {
    Array rows;    ///< the tokens whose states are wanted: indices into the tokens of the step, i32 (count,)
    Array values;  ///< set by the last part of the model: f32 (count, width)
  };
  States* states = nullptr;  ///< null: no states are wanted

  std::int64_t capacity() const { return cache != nullptr ? cache->capacity() : pages->context(); }
  std::int64_t expected() const { return cache != nullptr ? cache->expected() : pages->context(); }
  /// Stores the keys and values of layer `i`, and returns the queries (tokens, heads, head size).
  Array store(std::size_t i, std::span<const Array> qkv, const ops::HeadOptions& heads) const;
  /// Returns what the queries attend to, prepared for a product with `next`. `gates` (tokens, heads, head size)
  /// multiply it.
  ops::LinearInput attend(std::size_t i, const Array& queries, float scale, std::int64_t window, float cap,
                          const std::optional<Array>& sinks, const std::optional<Array>& gates,
                          const Weight& next) const;
  /// The states of recurrent layer `i`.
  RecurrentStates::Layer& recurrent(std::size_t i) const;
};

}  // namespace tessera
