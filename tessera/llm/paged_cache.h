// SPDX-License-Identifier: Apache-2.0
// A KV cache for many sequences. It consists of pages of 64 tokens, which sequences take as they grow. Sequences that
// begin with the same tokens share pages (Kwon et al. 2023; Zheng et al. 2024).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/llm/llama.h"
#include "tessera/ops/paged_attention.h"

namespace tessera {

/// Not movable and not thread-safe. Must outlive its sequences.
class PagedCache {
 public:
  /// The tokens of one text in the cache. Move-only; releases its pages when it is destroyed.
  class Sequence {
   public:
    Sequence() = default;  ///< A sequence of no cache.
    Sequence(Sequence&& other) noexcept;
    Sequence& operator=(Sequence&& other) noexcept;
    ~Sequence();
    /// The tokens whose keys and values are in the cache.
    std::span<const std::int32_t> tokens() const { return tokens_; }
    /// Number of tokens in the cache.
    std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
    /// Number of pages that the sequence uses, also those that it shares.
    std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }

   private:
    friend class PagedCache;
    Sequence(PagedCache& cache, std::uint64_t salt) : cache_(&cache), salt_(salt) {}
    PagedCache* cache_ = nullptr;
    std::uint64_t salt_ = 0;
    /// Models with recurrent layers: the sequence owns the slots 2 n and 2 n + 1, where n is `pair_`, or -1 if it has
    /// none yet. `slot_` contains its state, or is -1 if it is zero.
    std::int32_t pair_ = -1, slot_ = -1;
    std::vector<std::int32_t> tokens_, pages_;
  };

  /// Creates a cache of up to `pages` pages on the devices of the layers. It allocates a few pages, and more when
  /// sequences need them. `context` is the maximum number of tokens of a sequence; a model with LongRoPE chooses its
  /// factors based on it. Throws ArgumentError unless there is at least one page, and the errors of
  /// cache_row() for `dtype`. Throws OutOfMemory.
  PagedCache(const LlamaConfig& config, std::int64_t pages, std::span<const Device> layers, std::int64_t context,
             DType dtype = DType::f16);
  PagedCache(const PagedCache&) = delete;
  ~PagedCache();

  /// Size of a page in bytes, in all attention layers together.
  static std::uint64_t page_bytes(const LlamaConfig& config, DType dtype);
  std::uint64_t bytes() const;      ///< Size of the allocated pages in bytes.
  std::int64_t pages() const;       ///< Maximum number of pages. It decreases if the memory for them does not exist.
  std::int64_t used_pages() const;  ///< Number of pages that sequences use.
  /// Number of pages that no sequence uses, also those that are not allocated yet. Contents of free pages may still be
  /// found by share().
  std::int64_t free_pages() const { return pages() - used_pages(); }
  std::int64_t shared_pages() const;  ///< Number of pages that more than one sequence uses.
  std::int64_t kept_pages() const;    ///< Number of free pages whose contents can be found by share().
  std::int64_t context() const;       ///< The maximum number of tokens of a sequence.

  /// Creates an empty sequence. Sequences share pages only with those of the same `salt`.
  Sequence open(std::uint64_t salt = 0);
  /// Uses the pages of earlier sequences that begin with the same tokens: full pages only, and never the last of
  /// `tokens`, because its logits are needed. Returns the number of tokens that need not be read. Requires an empty
  /// sequence. Returns 0 for models with recurrent layers, because their states at the ends of pages are not kept.
  std::int64_t share(Sequence& sequence, std::span<const std::int32_t> tokens);
  /// Returns a sequence with the same tokens. Both use the same pages; the last one is copied when one of them grows.
  Sequence fork(const Sequence& sequence);
  /// Takes pages, so that `more` tokens can be appended. Returns false, and changes nothing, if there are too few free
  /// pages. New pages are allocated before contents that share() can find are dropped; of these, those that were used
  /// longest ago are dropped first.
  bool reserve(Sequence& sequence, std::int64_t more);
  /// True if reserve() has taken the pages for `more` tokens, and no other sequence uses them.
  bool can_append(const Sequence& sequence, std::int64_t more) const;
  /// Removes the tokens of a sequence. Its contents cannot be found by share(), unless other sequences use them.
  void discard(Sequence& sequence);
  /// Drops all contents that no sequence uses, so that share() does not find them.
  void forget();

 private:
  friend class Llama;
  friend class BatchDecoder;
  struct Page;
  struct State;
  void release(Sequence& sequence) noexcept;
  bool allocate(std::int64_t free);
  void append(Sequence& sequence, std::span<const std::int32_t> tokens);
  bool take_slots(Sequence& sequence);
  ops::PagedLayer& layer(std::size_t i) { return layers_[i]; }
  RecurrentStates::Layer& recurrent(std::size_t i) { return states_.layer(i); }
  /// The slot that contains the state of a sequence, or -1, and the slot for the next one.
  static std::pair<std::int32_t, std::int32_t> slots_of(const Sequence& sequence) {
    const std::int32_t first = 2 * sequence.pair_;
    return {sequence.slot_, sequence.slot_ == first ? first + 1 : first};
  }
  static std::int32_t spare_page() { return 0; }
  static std::span<const std::int32_t> pages_of(const Sequence& sequence) { return sequence.pages_; }

  std::vector<ops::PagedLayer> layers_;  ///< without arrays if has_cache() is false
  RecurrentStates states_;
  const bool recurrent_;
  Callback<void()> before_growth_;  ///< called before memory is reallocated; drops recordings that refer to it
  bool has_all_pairs_ = false;      ///< there is no memory for the states of more texts
  std::int64_t context_, limit_;
  detail::Owner<State> state_;
};

/// Tokens that a model reads for a sequence; see Llama::forward.
struct SequencePiece {
  PagedCache::Sequence* sequence = nullptr;   ///< The sequence. reserve() has taken the pages.
  std::span<const std::int32_t> tokens = {};  ///< The tokens that follow those of the sequence.
  bool logits = true;                         ///< The logits of the last token are wanted.
  /// If set, receives the states of the tokens after the model's last norm: f32 (tokens, width).
  std::vector<float>* states = nullptr;
};

}  // namespace tessera
