// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/paged_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <unordered_map>

#include "tessera/base/log.h"

namespace tessera {

using ops::page_positions;

namespace {

/// False for layers without keys and values of their own.
bool has_pages(const ops::PagedLayer& layer) { return layer.keys.size() > 0; }

}  // namespace

/// A page is used by sequences (`users`), or free. Full pages have contents that other sequences can share.
struct PagedCache::Page {
  std::int32_t users = 0;
  /// Identifies the tokens up to the end of the page, 0 if the page is not full or another page has the same contents.
  std::uint64_t contents = 0;
  std::uint64_t before = 0;  ///< `contents` of the page before
  std::uint64_t salt = 0;
  std::vector<std::int32_t> tokens;
  std::list<std::int32_t>::iterator place;  ///< in State::used or State::unused
};

struct PagedCache::State {
  std::vector<Page> pages;
  std::list<std::int32_t> used, unused;  ///< of the free pages, the next one to take is the first
  std::unordered_multimap<std::uint64_t, std::int32_t> by_hash;
  std::uint64_t last_contents = 0;
  std::int64_t shared = 0, kept = 0;
  std::vector<std::int32_t> free_pairs;  ///< of slots of recurrent layers

  static std::uint64_t hash(std::uint64_t before, std::uint64_t salt, std::span<const std::int32_t> tokens) {
    std::uint64_t h = before * 0x9E3779B97F4A7C15u ^ salt;
    for (const std::int32_t t : tokens) {
      h = (h ^ static_cast<std::uint32_t>(t)) * 0x9E3779B97F4A7C15u;
      h ^= h >> 29;
    }
    return h;
  }
  /// Returns the page with these contents, or -1.
  std::int32_t find(std::uint64_t before, std::uint64_t salt, std::span<const std::int32_t> tokens) const {
    const auto [begin, end] = by_hash.equal_range(hash(before, salt, tokens));
    for (auto at = begin; at != end; ++at) {
      const Page& page = pages[static_cast<std::size_t>(at->second)];
      if (page.before == before && page.salt == salt && std::ranges::equal(page.tokens, tokens)) return at->second;
    }
    return -1;
  }
  /// True if other sequences use the page, or can find its contents.
  bool is_fixed(std::int32_t number) const {
    const Page& page = pages[static_cast<std::size_t>(number)];
    return page.users > 1 || page.contents != 0;
  }
  void drop_contents(std::int32_t number) {
    Page& page = pages[static_cast<std::size_t>(number)];
    if (page.contents == 0) return;
    const auto [begin, end] = by_hash.equal_range(hash(page.before, page.salt, page.tokens));
    by_hash.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == number; }));
    page.contents = 0;
    page.tokens.clear();
  }
  void use(std::int32_t number) {
    Page& page = pages[static_cast<std::size_t>(number)];
    if (page.users == 0) {
      used.splice(used.end(), unused, page.place);
      if (page.contents != 0) --kept;
    }
    if (++page.users == 2) ++shared;
  }
  void release(std::int32_t number) noexcept {
    Page& page = pages[static_cast<std::size_t>(number)];
    if (--page.users == 1) --shared;
    if (page.users != 0) return;
    if (page.contents != 0) ++kept;
    // Pages without contents are taken first.
    unused.splice(page.contents != 0 ? unused.end() : unused.begin(), used, page.place);
  }
  /// Takes a free page, which must exist.
  std::int32_t take() {
    const std::int32_t number = unused.front();
    use(number);
    drop_contents(number);
    return number;
  }
};

PagedCache::PagedCache(const LlamaConfig& config, std::int64_t pages, std::span<const Device> layers,
                       std::int64_t context, DType dtype)
    : states_(config, 2, layers),
      recurrent_(config.is_recurrent()),
      context_(context),
      limit_(pages),
      state_(new State) {
  if (pages < 1 || pages > (std::int64_t{1} << 30))
    fail<ArgumentError>({.operation = "PagedCache",
                         .with = {{"pages", std::to_string(pages)}},
                         .wrong = "the number of pages must be between 1 and 2^30"});
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers_.push_back(config.has_cache(i) ? ops::PagedLayer::zeros(1, config.layer_kinds[i].key_heads,
                                                                   config.layer_kinds[i].head_size, dtype, layers[i])
                                          : ops::PagedLayer());
  state_->pages.resize(1);
  if (recurrent_) state_->free_pairs.push_back(0);
  if (!allocate(std::min<std::int64_t>(pages, 8)))
    fail<OutOfMemory>({.operation = "PagedCache",
                       .with = {{"bytes of a page", std::to_string(page_bytes(config, dtype))}},
                       .wrong = "there is no memory for a page"});
}

/// Allocates pages until `free` are free and without contents, up to the limit. Returns false if too few are free. One
/// layer is reallocated after the other, so that only one old buffer exists in addition to the cache.
bool PagedCache::allocate(std::int64_t free) {
  const auto before = static_cast<std::int64_t>(state_->pages.size()) - 1;
  const std::int64_t needed = before + free - (std::ssize(state_->unused) - state_->kept);
  if (free > free_pages()) return false;
  if (needed <= before || before == limit_) return true;
  const std::int64_t pages = std::min(limit_, std::max(needed, before + before / 4));
  if (before_growth_) before_growth_();
  try {
    const auto larger = [&](const Array& a) {
      Shape shape = a.shape();
      shape[0] = pages + 1;
      Array made = Array::zeros(shape, a.dtype(), a.device());
      made.slice(0, 0, a.shape(0)).assign(a);
      return made.eval();
    };
    for (ops::PagedLayer& l : layers_) {
      if (!has_pages(l) || l.keys.shape(0) > pages) continue;  // has none, or an earlier call ran out of memory
      l = {larger(l.keys), larger(l.values)};
      trim(l.keys.device());  // frees the old buffers, because they are too small to be reused
    }
  } catch (const OutOfMemory& e) {
    limit_ = before;
    logging::warn(fmt::format("the KV cache stays at {} pages of {} tokens: {}", before, page_positions, e.what()));
    return free <= free_pages();
  }
  state_->pages.resize(static_cast<std::size_t>(pages) + 1);
  for (auto page = static_cast<std::int32_t>(before) + 1; page <= pages; ++page)
    state_->pages[static_cast<std::size_t>(page)].place = state_->unused.insert(state_->unused.begin(), page);
  return true;
}

PagedCache::~PagedCache() = default;

std::uint64_t PagedCache::page_bytes(const LlamaConfig& config, DType dtype) {
  std::int64_t elements = 0;  // of a token
  for (std::size_t i = 0; i < config.layer_kinds.size(); ++i)
    if (const LlamaConfig::Layer& l = config.layer_kinds[i]; config.has_cache(i))
      elements += 2 * l.key_heads * cache_row(l.head_size, dtype);
  return static_cast<std::uint64_t>(elements * page_positions) * dtype_size(dtype);
}
std::uint64_t PagedCache::bytes() const {
  std::uint64_t n = states_.bytes();
  for (const ops::PagedLayer& l : layers_)
    if (has_pages(l)) n += l.keys.bytes() + l.values.bytes();
  return n;
}
std::int64_t PagedCache::pages() const { return limit_; }
std::int64_t PagedCache::used_pages() const { return std::ssize(state_->used); }
std::int64_t PagedCache::shared_pages() const { return state_->shared; }
std::int64_t PagedCache::kept_pages() const { return state_->kept; }
std::int64_t PagedCache::context() const { return context_; }

PagedCache::Sequence PagedCache::open(std::uint64_t salt) { return Sequence(*this, salt); }

std::int64_t PagedCache::share(Sequence& sequence, std::span<const std::int32_t> tokens) {
  std::uint64_t before = 0;
  const auto pages = tokens.empty() || recurrent_ ? 0 : (tokens.size() - 1) / page_positions;
  for (std::size_t p = 0; p < pages; ++p) {
    const auto of_page = tokens.subspan(p * page_positions, page_positions);
    const std::int32_t found = state_->find(before, sequence.salt_, of_page);
    if (found < 0) break;
    sequence.pages_.push_back(found);
    sequence.tokens_.insert(sequence.tokens_.end(), of_page.begin(), of_page.end());
    state_->use(found);
    before = state_->pages[static_cast<std::size_t>(found)].contents;
  }
  return sequence.length();
}

PagedCache::Sequence PagedCache::fork(const Sequence& sequence) {
  Sequence copy(*this, sequence.salt_);
  copy.tokens_ = sequence.tokens_;
  copy.pages_ = sequence.pages_;
  copy.pages_.resize(static_cast<std::size_t>((sequence.length() + page_positions - 1) / page_positions));
  for (const std::int32_t page : copy.pages_) state_->use(page);
  if (sequence.slot_ < 0) return copy;
  if (!take_slots(copy))
    fail<OutOfMemory>({.operation = "PagedCache::fork", .wrong = "there is no memory for the state of the sequence"});
  copy.slot_ = slots_of(copy).second;
  states_.copy(sequence.slot_, copy.slot_);
  return copy;
}

/// Takes two slots for a sequence that has none. Returns false if there is no memory for them.
bool PagedCache::take_slots(Sequence& sequence) {
  if (!recurrent_ || sequence.pair_ >= 0) return true;
  if (state_->free_pairs.empty()) {
    if (has_all_pairs_) return false;
    const std::int64_t before = states_.slots() / 2, pairs = before + std::max<std::int64_t>(1, before / 2);
    if (before_growth_) before_growth_();
    try {
      states_.grow(2 * pairs);
    } catch (const OutOfMemory& e) {
      has_all_pairs_ = true;
      logging::warn(fmt::format("the states of {} texts fit in memory: {}", before, e.what()));
      return false;
    }
    state_->free_pairs.reserve(static_cast<std::size_t>(pairs));  // release() must not throw
    for (auto pair = static_cast<std::int32_t>(pairs); pair-- > before;) state_->free_pairs.push_back(pair);
  }
  sequence.pair_ = state_->free_pairs.back();
  state_->free_pairs.pop_back();
  return true;
}

bool PagedCache::reserve(Sequence& sequence, std::int64_t more) {
  if (!take_slots(sequence)) return false;
  const std::int64_t length = sequence.length();
  const auto last = static_cast<std::size_t>(length / page_positions);
  const bool copies = more > 0 && length % page_positions != 0 && state_->is_fixed(sequence.pages_[last]);
  const std::int64_t wanted = (length + more + page_positions - 1) / page_positions - sequence.pages();
  if (!allocate(std::max<std::int64_t>(wanted, 0) + (copies ? 1 : 0))) return false;
  if (copies) {
    const std::int32_t old = sequence.pages_[last], page = state_->take();
    try {
      for (ops::PagedLayer& l : layers_) {
        if (!has_pages(l)) continue;
        for (Array* a : {&l.keys, &l.values}) {
          a->slice(0, page, page + 1).assign(a->slice(0, old, old + 1));
          a->eval();
        }
      }
    } catch (...) {
      state_->release(page);
      throw;
    }
    sequence.pages_[last] = page;
    state_->release(old);
  }
  for (std::int64_t i = 0; i < wanted; ++i) sequence.pages_.push_back(state_->take());
  return true;
}

void PagedCache::append(Sequence& sequence, std::span<const std::int32_t> tokens) {
  if (recurrent_) {  // the contents of pages alone cannot be shared
    sequence.tokens_.insert(sequence.tokens_.end(), tokens.begin(), tokens.end());
    sequence.slot_ = slots_of(sequence).second;
    return;
  }
  for (const std::int32_t token : tokens) {
    sequence.tokens_.push_back(token);
    if (sequence.length() % page_positions != 0) continue;
    const auto p = static_cast<std::size_t>(sequence.length() / page_positions) - 1;
    std::uint64_t before = 0;
    if (p > 0) before = state_->pages[static_cast<std::size_t>(sequence.pages_[p - 1])].contents;
    if (p > 0 && before == 0) continue;
    const auto of_page = std::span(sequence.tokens_).subspan(p * page_positions);
    std::int32_t& number = sequence.pages_[p];
    if (const std::int32_t same = state_->find(before, sequence.salt_, of_page); same >= 0) {
      state_->use(same);
      state_->release(std::exchange(number, same));
      continue;
    }
    Page& page = state_->pages[static_cast<std::size_t>(number)];
    page.contents = ++state_->last_contents, page.before = before, page.salt = sequence.salt_;
    page.tokens.assign(of_page.begin(), of_page.end());
    state_->by_hash.emplace(State::hash(before, page.salt, of_page), number);
  }
}

bool PagedCache::can_append(const Sequence& sequence, std::int64_t more) const {
  const std::int64_t length = sequence.length();
  if (length + more > sequence.pages() * page_positions || (recurrent_ && sequence.pair_ < 0)) return false;
  const auto last = static_cast<std::size_t>(length / page_positions);
  return more == 0 || length % page_positions == 0 || !state_->is_fixed(sequence.pages_[last]);
}

void PagedCache::discard(Sequence& sequence) {
  for (const std::int32_t page : sequence.pages_)
    if (state_->pages[static_cast<std::size_t>(page)].users == 1) state_->drop_contents(page);
  release(sequence);
}

void PagedCache::forget() {
  for (const std::int32_t page : state_->unused) state_->drop_contents(page);
  state_->kept = 0;
}

/// The last pages are released first, so that the begin of a text is kept for longer than its end.
void PagedCache::release(Sequence& sequence) noexcept {
  for (auto page = sequence.pages_.rbegin(); page != sequence.pages_.rend(); ++page) state_->release(*page);
  sequence.pages_.clear();
  sequence.tokens_.clear();
  if (sequence.pair_ >= 0) state_->free_pairs.push_back(sequence.pair_);
  sequence.pair_ = sequence.slot_ = -1;
}

PagedCache::Sequence::Sequence(Sequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      salt_(other.salt_),
      pair_(std::exchange(other.pair_, -1)),
      slot_(std::exchange(other.slot_, -1)),
      tokens_(std::move(other.tokens_)),
      pages_(std::move(other.pages_)) {}
PagedCache::Sequence& PagedCache::Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  if (cache_ != nullptr) cache_->release(*this);
  cache_ = std::exchange(other.cache_, nullptr), salt_ = other.salt_;
  pair_ = std::exchange(other.pair_, -1), slot_ = std::exchange(other.slot_, -1);
  tokens_ = std::exchange(other.tokens_, {}), pages_ = std::exchange(other.pages_, {});
  return *this;
}
PagedCache::Sequence::~Sequence() {
  if (cache_ != nullptr) cache_->release(*this);
}

}  // namespace tessera
