// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/train_tokenizer.h"
#include "tessera/llm/tokenizer_split.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_writer.h"

namespace tessera {
namespace {

using Symbol = std::uint32_t;
using Pair = std::uint64_t;  // left << 32 | right, so that comparing pairs breaks ties in the documented order
using Place = std::uint32_t;

constexpr Symbol gone = std::numeric_limits<Symbol>::max();  // merged into its left neighbour
constexpr Place nowhere = std::numeric_limits<Place>::max();

Pair pair_of(Symbol left, Symbol right) { return static_cast<Pair>(left) << 32 | right; }

/// Returns the 256 bytes, sorted by the characters that represent them in the vocabulary.
std::array<unsigned char, 256> bytes_in_order() {
  std::array<unsigned char, 256> out{};
  for (std::size_t b = 0; b < 256; ++b) out[b] = static_cast<unsigned char>(b);
  const auto text = [](unsigned char b) { return byte_level_text(std::string_view(reinterpret_cast<char*>(&b), 1)); };
  // UTF-8 strings sort in the same order as their code points.
  std::sort(out.begin(), out.end(), [&](unsigned char a, unsigned char b) { return text(a) < text(b); });
  return out;
}

/// The distinct pieces of the texts as one array of symbols. Merges are applied in place.
class Pieces {
 public:
  explicit Pieces(std::span<const Symbol> of_byte) : of_byte_(of_byte) {}

  /// Adds a piece that occurs `count` times.
  void add(std::string_view piece, std::int64_t count) {
    if (piece.size() >= nowhere - symbols_.size())
      fail<ArgumentError>({.operation = "train_tokenizer",
                           .with = {{"bytes", std::to_string(symbols_.size() + piece.size())}},
                           .wrong = "the distinct pieces of the text have more than 2^32 bytes",
                           .remedy = "Train on a part of the text"});
    const auto first = static_cast<Place>(symbols_.size());
    const auto size = static_cast<Place>(piece.size());
    for (Place i = 0; i < size; ++i) {
      symbols_.push_back(of_byte_[static_cast<unsigned char>(piece[i])]);
      before_.push_back(i == 0 ? nowhere : first + i - 1);
      after_.push_back(i + 1 == size ? nowhere : first + i + 1);
      weight_.push_back(count);
    }
    for (Place i = 0; i + 1 < size; ++i) change(first + i, 1);
  }

  /// Sets `best` to the most frequent pair. Returns false if no pair occurs at least `least` times.
  bool next(std::int64_t least, Pair& best) {
    for (const Pair pair : grown_) offer(pair);
    grown_.clear();
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      const std::int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count && count >= least) {
        best = top.pair;
        return true;
      }
      // The entry is stale: the pair has become rarer since it was queued.
      if (count != top.count && count >= least) queue_.push({count, top.pair});
    }
    return false;
  }

  /// Replaces every occurrence of the pair by `result`, from left to right in each piece.
  void merge(Pair pair, Symbol result) {
    std::vector<Place> places = std::move(pairs_[pair].places);
    pairs_[pair].places = {};
    std::sort(places.begin(), places.end());
    const auto left = static_cast<Symbol>(pair >> 32), right = static_cast<Symbol>(pair);
    for (const Place at : places) {
      if (symbols_[at] != left) continue;
      const Place behind = after_[at];
      if (behind == nowhere || symbols_[behind] != right) continue;
      const Place before = before_[at], last = after_[behind];
      if (before != nowhere) change(before, -1);
      change(at, -1);
      if (last != nowhere) change(behind, -1);
      symbols_[at] = result, symbols_[behind] = gone;
      after_[at] = last;
      if (last != nowhere) before_[last] = at;
      if (before != nowhere) change(before, 1);
      if (last != nowhere) change(at, 1);
    }
    const auto found = pairs_.find(pair);
    if (found->second.count == 0 && found->second.places.empty()) pairs_.erase(found);
  }

 private:
  struct Counted {
    std::int64_t count = 0;
    std::vector<Place> places;  ///< positions of the left symbol; may contain stale positions
    bool grown = false;         ///< true if the pair is in grown_
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
  };

  /// Adds (`by` = 1) or removes (`by` = -1) the pair at position `at`.
  void change(Place at, int by) {
    const Pair pair = pair_of(symbols_[at], symbols_[after_[at]]);
    Counted& counted = pairs_[pair];
    counted.count += by * weight_[at];
    if (by < 0) return;
    counted.places.push_back(at);
    if (!counted.grown) grown_.push_back(pair);
    counted.grown = true;
  }
  void offer(Pair pair) {
    const auto found = pairs_.find(pair);
    if (found == pairs_.end()) return;
    found->second.grown = false;
    if (found->second.count > 0) queue_.push({found->second.count, pair});
  }

  std::span<const Symbol> of_byte_;
  std::vector<Symbol> symbols_;
  std::vector<Place> before_, after_;  ///< positions of the neighbours within the piece
  std::vector<std::int64_t> weight_;   ///< number of occurrences of the piece in the texts
  std::unordered_map<Pair, Counted> pairs_;
  std::vector<Pair> grown_;
  /// Candidates for the next merge. An entry may be stale: pairs become rarer when their neighbours are merged.
  std::priority_queue<Candidate> queue_;
};

void check(const TrainTokenizerOptions& o) {
  const auto refuse = [](std::string_view name, std::string value, std::string wrong) {
    fail<ArgumentError>(
        {.operation = "train_tokenizer", .with = {{name, std::move(value)}}, .wrong = std::move(wrong)});
  };
  if (o.vocabulary < 257 || o.vocabulary > (1 << 20))
    refuse("vocabulary", std::to_string(o.vocabulary),
           "the vocabulary must have 257 (the bytes and the end of text) to 2^20 tokens");
  if (o.min_count < 1) refuse("min_count", std::to_string(o.min_count), "min_count must be at least 1");
  if (o.end_of_text.empty()) refuse("end_of_text", "\"\"", "end_of_text must not be empty");
}

}  // namespace

TrainedTokenizer train_tokenizer(std::span<const std::string_view> texts, const TrainTokenizerOptions& o) {
  check(o);
  const PreTokenizer pre(o.pre_tokenizer);
  TrainedTokenizer out{.pre_tokenizer = o.pre_tokenizer, .tokens = {}, .merges = {}};
  std::array<Symbol, 256> of_byte{};
  std::unordered_map<std::string, Symbol> numbers;
  for (const unsigned char byte : bytes_in_order()) {
    of_byte[byte] = static_cast<Symbol>(out.tokens.size());
    out.tokens.push_back(byte_level_text(std::string_view(reinterpret_cast<const char*>(&byte), 1)));
    numbers.emplace(out.tokens.back(), of_byte[byte]);
  }

  // The distinct pieces are sorted, so that the result does not depend on the order of the hash table.
  std::unordered_map<std::string_view, std::int64_t> counts;
  std::vector<std::string_view> pieces;
  for (const std::string_view text : texts) {
    pieces.clear();
    pre.split(text, pieces);
    for (const std::string_view piece : pieces)
      if (piece.size() > 1) ++counts[piece];
  }
  std::vector<std::pair<std::string_view, std::int64_t>> different(counts.begin(), counts.end());
  std::sort(different.begin(), different.end());
  Pieces in_merging(of_byte);
  for (const auto& [piece, count] : different) in_merging.add(piece, count);

  Pair best = 0;
  while (static_cast<std::int64_t>(out.tokens.size()) + 1 < o.vocabulary && in_merging.next(o.min_count, best)) {
    const std::string& left = out.tokens[best >> 32];
    const std::string& right = out.tokens[best & 0xffffffffu];
    out.merges.push_back(left + " " + right);
    // Two merges with the same text share one token.
    const auto [token, is_new] = numbers.emplace(left + right, static_cast<Symbol>(out.tokens.size()));
    const Symbol result = token->second;
    if (is_new) out.tokens.push_back(token->first);
    in_merging.merge(best, result);
  }
  if (numbers.count(o.end_of_text))
    fail<ArgumentError>({.operation = "train_tokenizer",
                         .with = {{"end_of_text", o.end_of_text}},
                         .wrong = "a merged token has the same text",
                         .remedy = "Use a different end_of_text, or remove it from the texts"});
  out.end_of_text = static_cast<TokenId>(out.tokens.size());
  out.tokens.push_back(o.end_of_text);
  return out;
}

void TrainedTokenizer::describe(GgufWriter& file) const {
  constexpr auto normal = static_cast<std::int32_t>(TokenType::normal);
  std::vector<std::int32_t> types(tokens.size(), normal);
  types[static_cast<std::size_t>(end_of_text)] = static_cast<std::int32_t>(TokenType::control);
  const auto end = static_cast<std::uint32_t>(end_of_text);
  file.set("tokenizer.ggml.model", std::string("gpt2"))
      .set("tokenizer.ggml.pre", pre_tokenizer)
      .set("tokenizer.ggml.tokens", tokens)
      .set("tokenizer.ggml.token_type", types)
      .set("tokenizer.ggml.merges", merges)
      .set("tokenizer.ggml.bos_token_id", end)
      .set("tokenizer.ggml.eos_token_id", end)
      .set("tokenizer.ggml.add_bos_token", true);
}

Tokenizer TrainedTokenizer::tokenizer() const {
  GgufWriter file;
  describe(file);
  const std::vector<std::byte> bytes = file.bytes();
  return Tokenizer(GgufFile::parse(bytes, "the trained tokenizer"));
}

}  // namespace tessera
