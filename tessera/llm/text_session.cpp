// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/text_session.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "tessera/base/error.h"
#include "tessera/device/memory/storage.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/grammar/matcher.h"
#include "tessera/llm/saved_prompt.h"
#include "tessera/llm/text_builder.h"

namespace tessera {
namespace {

constexpr std::int64_t page = 256;  // the cache grows in multiples of this number of tokens

bool needs_all_logits(const GenerateOptions& options) { return options.log_probabilities >= 0 || options.grammar; }

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

TextSession::TextSession(const LanguageModel& model, std::int64_t context, DType cache_dtype, Memory memory,
                         bool recorded)
    : model_(model),
      context_(context),
      cache_(model.model().make_cache(memory == Memory::at_once ? context : std::min(context, page), cache_dtype)),
      recorded_(recorded) {
  require_context("generate", context, model.model().config().context_length);
  cache_.expect(context);
}

TextSession::~TextSession() = default;
std::span<const TokenId> TextSession::tokens() const { return tokens_; }
std::uint64_t TextSession::cache_bytes() const { return cache_.bytes(); }

void TextSession::clear() {
  cache_.truncate(0);
  tokens_.clear();
}

void TextSession::reserve(std::int64_t tokens) {
  if (tokens <= cache_.capacity()) return;
  // Grow by at least a quarter, so that a long text causes only a few reallocations.
  const std::int64_t wanted = std::max(tokens, cache_.capacity() + cache_.capacity() / 4);
  decoder_.reset();
  cache_.grow(std::min(context_, (wanted + page - 1) / page * page));
  // Free the buffers of the old cache, because they are too small to be reused.
  const std::vector<Device>& layers = model_.model().layer_devices();
  for (const Device device : std::set(layers.begin(), layers.end())) trim(device);
}

std::int64_t TextSession::read(std::span<const TokenId> prompt, const GenerateOptions& options, const Sampler& sampler,
                               bool reports) {
  const auto same = static_cast<std::size_t>(
      std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end()).first - tokens_.begin());
  // Always read the last token again, because its logits are needed.
  std::size_t at = std::min(same, prompt.size() - 1);
  at = static_cast<std::size_t>(cache_.truncate(static_cast<std::int64_t>(at)));
  tokens_.resize(at);
  const std::size_t begin = at;
  while (at < prompt.size() && !cancelled(options)) {
    if (reports && options.on_read)
      options.on_read(static_cast<std::int64_t>(at - begin), static_cast<std::int64_t>(prompt.size() - begin));
    const auto piece = prompt.subspan(
        at, static_cast<std::size_t>(Llama::next_piece(std::ssize(prompt) - std::ssize(tokens_), options.batch)));
    reserve(static_cast<std::int64_t>(at + piece.size()));
    try {
      const Array last = model_.model().forward(piece, cache_);
      if (at + piece.size() == prompt.size()) {
        logits_[last_].fetch(last, sampler, needs_all_logits(options));
        logits_[last_].wait();
      } else {
        last.eval();
      }
    } catch (...) {  // the piece may be partially written
      cache_.truncate(static_cast<std::int64_t>(at));
      throw;
    }
    tokens_.insert(tokens_.end(), piece.begin(), piece.end());
    at += piece.size();
  }
  return static_cast<std::int64_t>(at - begin);
}

Decoder& TextSession::decoder() {
  reserve(cache_.length() + 1);
  if (!decoder_) decoder_ = detail::Owner<Decoder>(new Decoder(model_.model(), cache_, recorded_));
  return *decoder_;
}

bool TextSession::step_ahead(const Sampler& sampler) {
  const std::optional<Array> token = logits_[last_].token_on_device();
  if (!token || !decoder_ || !decoder_->takes_arrays() || cache_.length() >= cache_.capacity()) return false;
  try {
    logits_[1 - last_].fetch(decoder_->step(*token), sampler, false);
  } catch (const OutOfMemory&) {  // thrown again if the text needs this step
    cache_.truncate(length());
    return false;
  }
  return true;
}

std::int64_t TextSession::restore(std::span<const TokenId> prompt, const GenerateOptions& options) {
  const std::optional<SavedPrompt> saved = SavedPrompt::open(options.prompt_cache, model_, cache_);
  if (!saved) return 0;
  const std::int64_t same = saved->common_tokens(prompt);
  reserve(std::min(same + 1, context_));
  saved->load(cache_, same);
  tokens_.assign(prompt.begin(), prompt.begin() + same);
  return same;
}

grammar::Matcher* TextSession::start_grammar(const GenerateOptions& options) {
  if (!options.grammar) return nullptr;
  if (!matcher_ || matcher_->grammar() != options.grammar)
    matcher_ = detail::Owner<grammar::Matcher>(new grammar::Matcher(options.grammar, model_.tokenizer()));
  matcher_->reset();
  return matcher_.get();
}

TokenId TextSession::sample(Sampler& sampler, grammar::Matcher* matcher) {
  if (matcher == nullptr) return logits_[last_].sample(sampler, tokens_);
  matcher->mask().apply(logits_[last_].all(), masked_);
  const TokenId next = sampler.sample(masked_, tokens_);
  if (!model_.tokenizer().is_end(next)) matcher->append(next);
  return next;
}

GenerateResult TextSession::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                     const TextCallback& on_text, const ContextShift& shift_context) {
  const auto given = static_cast<std::int64_t>(prompt.size());
  require_generate(options);
  require_prompt(given, context_, model_.model().config().context_length);
  const Tokenizer& tokenizer = model_.tokenizer();
  Sampler sampler(options.sampling);
  TextBuilder text(tokenizer, options.stop, options.shown);
  grammar::Matcher* const matcher = start_grammar(options);
  GenerateResult result;
  result.prompt_tokens.assign(prompt.begin(), prompt.end());
  const auto emit = [&](const std::string& piece) {
    result.text += piece;
    return piece.empty() || !on_text || on_text(piece);
  };

  const double begun = now();
  const bool is_first = tokens_.empty() && !options.prompt_cache.empty();
  const std::int64_t restored = is_first ? restore(prompt, options) : 0;
  result.read = read(prompt, options, sampler, true);
  result.prompt_seconds = now() - begun;
  if (is_first && restored < given && length() == given) save_prompt(options.prompt_cache, model_, cache_, tokens_);
  const double start = now();
  bool going = options.max_tokens > 0, whole = true;
  if (tokens_.size() < prompt.size())
    result.reason = StopReason::cancelled, going = false;
  else if (going && length() >= context_)
    result.reason = StopReason::context_full, going = false;
  // Drops a step of a token that the text does not contain.
  struct DropAhead {
    ~DropAhead() { session.cache_.truncate(std::min(session.cache_.length(), session.length())); }
    TextSession& session;
  } const drop_ahead{*this};
  while (going) {
    if (cancelled(options)) {
      result.reason = StopReason::cancelled;
      break;
    }
    if (matcher != nullptr && matcher->is_complete() && tokenizer.ends().empty()) {
      result.reason = StopReason::end_token;
      break;
    }
    const bool is_last =
        static_cast<std::int64_t>(result.tokens.size()) + 1 >= options.max_tokens || length() + 1 >= context_;
    const bool ahead = !is_last && step_ahead(sampler);
    const TokenId next = sample(sampler, matcher);
    if (tokenizer.is_end(next)) {
      result.reason = StopReason::end_token, result.end_token = next;
      break;
    }
    result.tokens.push_back(next);
    if (options.log_probabilities >= 0)
      result.log_probabilities.push_back(log_probabilities(logits_[last_].all(), next, options.log_probabilities));
    const bool wanted = emit(text.push(next));
    if (text.stopped()) {
      result.reason = StopReason::stop_text, result.stop = *text.stopped();
      whole = false;
      break;
    }
    if (!wanted) {
      result.reason = StopReason::cancelled;
      break;
    }
    if (static_cast<std::int64_t>(result.tokens.size()) >= options.max_tokens) {
      result.reason = StopReason::max_tokens;
      break;
    }
    if (length() + 1 >= context_) {  // with `next`, the context is full
      const std::vector<TokenId> instead = shift_context ? shift_context(result.tokens) : std::vector<TokenId>();
      if (instead.empty() || static_cast<std::int64_t>(instead.size()) >= context_) {
        result.reason = StopReason::context_full;
        break;
      }
      read(instead, options, sampler, false);
      if (tokens_.size() < instead.size()) {
        result.reason = StopReason::cancelled;
        break;
      }
      continue;
    }
    if (ahead)
      last_ = 1 - last_;
    else
      logits_[last_].fetch(decoder().step(next), sampler, needs_all_logits(options));
    tokens_.push_back(next);
  }
  if (whole) {
    emit(text.finish());
    if (text.stopped()) result.reason = StopReason::stop_text, result.stop = *text.stopped();
  }
  result.generate_seconds = now() - start;
  return result;
}

}  // namespace tessera
