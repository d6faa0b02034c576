// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <utility>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/grammar/token_trie.h"
#include "tessera/llm/hub/metadata.h"
#include "tessera/llm/tokenizer_errors.h"
#include "tessera/llm/tokenizer_tables.h"

namespace tessera {
namespace {

// Tokens that end a turn or a document in common models. They are needed because some files do not list all of their
// end tokens in the metadata.
constexpr std::array<std::string_view, 17> end_texts = {"<|eot_id|>",
                                                        "<|eom_id|>",
                                                        "<|end_of_text|>",
                                                        "<|endoftext|>",
                                                        "<|im_end|>",
                                                        "<|end|>",
                                                        "<end_of_turn>",
                                                        "<EOT>",
                                                        "_<EOT>",
                                                        "[EOT]",
                                                        "[EOS]",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<end_of_utterance>",
                                                        "<turn|>",
                                                        "<|tool_response>",
                                                        "<｜end▁of▁sentence｜>"};
// Tokens for code completion (fill in the middle), which must not be produced from user text: those before the parts of
// a text in the order of FillTokens, and those that end the generated part.
constexpr std::array<std::array<std::string_view, 7>, 3> fill_texts = {
    {{"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"},
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"},
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"}}};
constexpr std::array<std::string_view, 5> fill_end_texts = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>",
                                                            "<|file_sep|>"};
// The keys of these tokens, and those of older files.
constexpr std::array<std::array<const char*, 2>, 3> fill_keys = {
    {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
     {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
     {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"}}};

bool overlaps(std::span<const EncodeOptions::Range> ranges, std::size_t begin, std::size_t end) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const auto& r) { return r.begin < end && begin < r.end; });
}

// The White_Space characters of Unicode.
constexpr std::array<std::string_view, 25> spaces = {
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\u0085", "\u00a0", "\u1680",
    "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
    "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

std::string_view without_space_before(std::string_view text) {
  const auto starts = [&](std::string_view space) { return text.starts_with(space); };
  for (auto s = std::ranges::find_if(spaces, starts); s != spaces.end(); s = std::ranges::find_if(spaces, starts))
    text.remove_prefix(s->size());
  return text;
}
std::string_view without_space_after(std::string_view text) {
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (auto s = std::ranges::find_if(spaces, ends); s != spaces.end(); s = std::ranges::find_if(spaces, ends))
    text.remove_suffix(s->size());
  return text;
}

/// True for a "llama" vocabulary with ranked merges.
bool is_gemma4(const GgufFile& file) { return file.get<std::string>("tokenizer.ggml.model") == "gemma4"; }

}  // namespace

Tokenizer::Model Tokenizer::model_of(const GgufFile& file) {
  const auto model = file.get<std::string>("tokenizer.ggml.model");
  if (model == "gpt2") return Model::gpt2;
  if (model == "llama" || is_gemma4(file)) return Model::llama;
  if (model == "bert") return Model::bert;
  if (model == "t5") return Model::t5;
  throw_tokenizer_error(
      file, "tokenizer.ggml.model", fmt::format("the tokenizer {} is not supported", quote_text(model)),
      "Supported tokenizers: \"gpt2\" (byte-level BPE: GPT-2, Llama 3, Qwen and related models), \"llama\" "
      "(SentencePiece BPE: Llama 2, Mistral, Gemma, Phi 3), \"gemma4\" (the same with ranked merges), \"bert\" "
      "(WordPiece: BERT, BGE, MiniLM) and \"t5\" (Unigram: XLM-R, multilingual E5)");
}

std::string Tokenizer::pre_of(const GgufFile& file, Model model) {
  constexpr std::string_view key = "tokenizer.ggml.pre";
  if (model != Model::gpt2) return "default";  // the others do not use a pre-tokenizer
  const auto pre = file.find_as<std::string>(key);
  if (!pre)
    logging::warn(
        fmt::format("{}: the file does not specify its pre-tokenizer ({} is missing): \"default\" is used, which may "
                    "reduce the quality of the output",
                    file.name(), key));
  else if (!PreTokenizer::known(*pre))
    throw_tokenizer_error(file, key, fmt::format("the pre-tokenizer {} is not supported", quote_text(*pre)),
                          "Supported pre-tokenizers: " + PreTokenizer::supported());
  return pre.value_or("default");
}

Tokenizer::Tokenizer(const GgufFile& file)
    : model_(model_of(file)), tables_(std::make_shared<Tables>(pre_of(file, model_))) {
  read_vocabulary(file);
  if (model_ == Model::gpt2) {
    tables_->nfc = file.get_or<bool>(hub::nfc_key, false);
    read_bytes_of_gpt2();
    read_merges(file);
  } else if (model_ == Model::bert) {
    read_wordpiece(file);
  } else if (model_ == Model::t5) {
    read_unigrams(file);
  } else {
    read_bytes_of_llama();
    file.get_or<bool>(hub::ranks_key, is_gemma4(file)) ? read_merges(file) : read_scores(file);
    if (file.get_or<bool>("tokenizer.ggml.add_space_prefix", !is_gemma4(file))) {
      const std::string when = file.get_or<std::string>(hub::space_key, "fragment");
      space_ = when == "word" ? SpaceBefore::word : when == "first" ? SpaceBefore::first : SpaceBefore::fragment;
    }
  }
  read_special(file);
}

void Tokenizer::read_vocabulary(const GgufFile& file) {
  constexpr std::string_view tokens_key = "tokenizer.ggml.tokens", types_key = "tokenizer.ggml.token_type";
  const std::vector<std::string>& texts = file.get_strings(tokens_key);
  if (texts.empty() || texts.size() > 0x7fffffffu)
    throw_tokenizer_error(file, tokens_key, fmt::format("the vocabulary has {} tokens", texts.size()));
  std::vector<std::int32_t> types;
  if (const GgufValue* value = file.find(types_key)) {
    const auto* array = std::get_if<GgufArray>(value);
    if (array != nullptr && array->element_type() != GgufType::i32 && array->element_type() != GgufType::u32)
      throw_tokenizer_error(file, types_key,
                            fmt::format("the types are an {}; expected an array of i32", gguf_type_text(*value)));
    types = file.get_array<std::int32_t>(types_key);
    if (types.size() != texts.size())
      throw_tokenizer_error(file, types_key,
                            fmt::format("there are {} types for {} tokens", types.size(), texts.size()));
  }
  tables_->tokens.resize(texts.size());
  tables_->byte_ids.fill(no_token);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Token& token = tables_->tokens[i];
    if (!types.empty()) {
      if (types[i] < 0 || types[i] > 6)
        throw_tokenizer_error(file, types_key,
                              fmt::format("token {} has type {}; valid types are 0 to 6", i, types[i]));
      token.type = static_cast<TokenType>(types[i]);
    }
    token.text = token.bytes = texts[i];
    const auto id = static_cast<TokenId>(i);
    // Some converters pad the vocabulary with empty tokens.
    if (token.text.empty()) continue;
    const auto [other, is_new] = tables_->by_text.emplace(token.text, id);
    // In the notation of "bert" vocabularies, two tokens can be the same. The first one is used.
    if (!is_new && model_ != Model::bert)
      throw_tokenizer_error(
          file, tokens_key,
          fmt::format("the token {} occurs twice ({} and {})", quote_text(token.text), other->second, id));
  }
}

void Tokenizer::read_special(const GgufFile& file) {
  const auto id_of = [&](std::string_view key) -> std::optional<TokenId> {
    const auto id = file.find_as<std::uint32_t>(key);
    if (!id) return std::nullopt;
    if (*id >= tables_->tokens.size())
      throw_tokenizer_error(file, key,
                            fmt::format("the id is {}, but the vocabulary has {} tokens", *id, tables_->tokens.size()));
    return static_cast<TokenId>(*id);
  };
  const bool is_wordpiece = model_ == Model::bert;
  if (is_wordpiece) bos_ = id_of("tokenizer.ggml.cls_token_id"), eos_ = id_of("tokenizer.ggml.seperator_token_id");
  if (!bos_) bos_ = id_of("tokenizer.ggml.bos_token_id");
  if (!eos_) eos_ = id_of("tokenizer.ggml.eos_token_id");
  unknown_ = id_of("tokenizer.ggml.unknown_token_id");
  for (const auto key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = id_of(key)) ends_.push_back(*id);

  const auto flag = [&](std::string_view key, const std::optional<TokenId>& id, bool otherwise) {
    const auto wanted = file.find_as<bool>(key);
    if (wanted.value_or(false) && !id)
      throw_tokenizer_error(file, key, "the value is true, but the file does not define this token");
    return wanted.value_or(otherwise) && id;
  };
  adds_bos_ = flag("tokenizer.ggml.add_bos_token", bos_, model_ == Model::llama || tables_->pre.adds_bos());
  // Early files say that there is no begin token, but the model needs it.
  if (is_gemma4(file)) adds_bos_ = bos_.has_value();
  adds_eos_ = flag("tokenizer.ggml.add_eos_token", eos_, model_ == Model::t5);
  if (is_wordpiece) read_wordpiece_ends(file);
  if (model_ == Model::t5 && !unknown_)
    throw_tokenizer_error(file, "tokenizer.ggml.unknown_token_id", "the file does not define this token");

  std::array<std::optional<TokenId>, 3> fills;
  for (std::size_t part = 0; part < fills.size(); ++part)
    for (const char* const key : fill_keys[part])
      if (!fills[part]) fills[part] = id_of(key);
  for (std::size_t i = 0; i < tables_->tokens.size(); ++i) {
    Token& token = tables_->tokens[i];
    const auto id = static_cast<TokenId>(i);
    const auto is_one_of = [&](const auto& texts) {
      return std::find(texts.begin(), texts.end(), token.text) != texts.end();
    };
    const bool ends = is_one_of(end_texts) || is_one_of(fill_end_texts);
    if (ends) ends_.push_back(id);
    bool fills_gap = false;
    for (std::size_t part = 0; part < fills.size(); ++part)
      if (is_one_of(fill_texts[part])) {
        fills_gap = true;
        if (!fills[part]) fills[part] = id;
      }
    // Some files declare these tokens as normal or user-defined, but they are control tokens.
    if (ends || fills_gap) token.type = TokenType::control;
    const bool special =
        token.type == TokenType::control || token.type == TokenType::user_defined || token.type == TokenType::unknown;
    if (special && !token.text.empty()) special_.push_back(id);
  }
  if (fills[0] && fills[1] && fills[2]) fill_ = FillTokens{*fills[0], *fills[1], *fills[2]};
  for (const TokenId id : ids_of(file, hub::ends_key)) ends_.push_back(id);
  // In the harmony format, which has these tokens, <|end|> ends one of several messages of an answer.
  if (find("<|return|>") && find("<|call|>")) {
    const auto end = find("<|end|>");
    std::erase_if(ends_, [&](TokenId id) { return id == end; });
  }
  std::sort(ends_.begin(), ends_.end());
  ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
  std::stable_sort(special_.begin(), special_.end(),
                   [&](TokenId a, TokenId b) { return token(a).text.size() > token(b).text.size(); });
  read_strips(file);
}

std::vector<TokenId> Tokenizer::ids_of(const GgufFile& file, std::string_view key) const {
  if (!file.has(key)) return {};
  std::vector<TokenId> ids = file.get_array<TokenId>(key);
  for (const TokenId id : ids)
    if (id < 0 || static_cast<std::size_t>(id) >= tables_->tokens.size())
      throw_tokenizer_error(file, key, fmt::format("the token {} does not exist", id));
  return ids;
}

void Tokenizer::read_strips(const GgufFile& file) {
  for (const auto& [key, strips] :
       {std::pair(hub::strips_left_key, &Token::strips_left), std::pair(hub::strips_right_key, &Token::strips_right)})
    for (const TokenId id : ids_of(file, key)) tables_->tokens[static_cast<std::size_t>(id)].*strips = true;
  if (model_ != Model::llama || file.has(hub::strips_right_key)) return;
  // GGUF files have no key for this. The vocabulary identifies Phi 3, in which white space after all special tokens but
  // three is removed (tokenizer.json).
  constexpr std::array phi3 = {"<|user|>", "<|assistant|>", "<|end|>", "<|placeholder1|>"};
  if (!std::ranges::all_of(phi3, [&](const char* text) { return find(text).has_value(); })) return;
  for (const TokenId id : special_) {
    Token& t = tables_->tokens[static_cast<std::size_t>(id)];
    t.strips_right = t.text != "<unk>" && t.text != "<s>" && t.text != "<|endoftext|>";
  }
}

const Tokenizer::Token& Tokenizer::token(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tables_->tokens.size())
    fail<ArgumentError>({.operation = "tokenizer",
                         .with = {{"id", std::to_string(id)}, {"tokens", std::to_string(tables_->tokens.size())}},
                         .wrong = "the token does not exist"});
  return tables_->tokens[static_cast<std::size_t>(id)];
}

std::size_t Tokenizer::size() const { return tables_->tokens.size(); }
std::string_view Tokenizer::text(TokenId id) const { return token(id).text; }
TokenType Tokenizer::type(TokenId id) const { return token(id).type; }
std::span<const TokenId> Tokenizer::ends() const { return ends_; }

const grammar::TokenTrie& Tokenizer::trie() const {
  std::call_once(tables_->trie_built, [&] { tables_->trie = std::make_shared<const grammar::TokenTrie>(*this); });
  return *tables_->trie;
}

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  const auto it = tables_->by_text.find(text);
  return it == tables_->by_text.end() ? std::nullopt : std::optional(it->second);
}

bool Tokenizer::is_end(TokenId id) const { return std::binary_search(ends_.begin(), ends_.end(), id); }

std::string_view Tokenizer::decode(TokenId id, bool special) const {
  const Token& t = token(id);
  const bool hidden = t.type == TokenType::control || t.type == TokenType::unknown;
  return hidden && !special ? std::string_view() : std::string_view(t.bytes);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  bool begins = adds_space();
  for (const TokenId id : ids) {
    std::string_view bytes = decode(id, special);
    const TokenType type = token(id).type;
    if (begins && type != TokenType::control && type != TokenType::unknown) {
      if (!bytes.empty() && bytes.front() == ' ') bytes.remove_prefix(1);
      begins = false;
    }
    out += bytes;
  }
  return out;
}

std::vector<TokenId> Tokenizer::encode_gap(std::string_view before, std::string_view after) const {
  if (!fill_)
    fail<ArgumentError>({.operation = "encode_gap",
                         .wrong = "the vocabulary has no tokens for filling in the middle",
                         .remedy = "Use a model that was trained for it, such as a code model"});
  std::vector<TokenId> out;
  if (adds_bos_) out.push_back(*bos_);
  for (const auto& [mark, text] : {std::pair(fill_->prefix, before), std::pair(fill_->suffix, after)}) {
    out.push_back(mark);
    const std::vector<TokenId> tokens = encode(text, {.add_special = false});
    out.insert(out.end(), tokens.begin(), tokens.end());
  }
  out.push_back(fill_->middle);
  return out;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  // The text is split into fragments. A fragment is a special token, or text that is not tokenised yet (`no_token`).
  struct Fragment {
    std::string_view text;
    TokenId id;
  };
  std::vector<Fragment> fragments{{text, no_token}}, next;
  for (const TokenId id : special_) {
    const Token& special = tables_->tokens[static_cast<std::size_t>(id)];
    if (!options.parse_special && special.type != TokenType::user_defined) continue;
    // As in llama.cpp, longer tokens are matched first, even if a shorter token occurs earlier in the text.
    next.clear();
    bool found = false;
    for (const Fragment& fragment : fragments) {
      if (fragment.id != no_token) {
        next.push_back(fragment);
        continue;
      }
      std::string_view rest = fragment.text;
      for (std::size_t at = 0; (at = rest.find(special.text, at)) != std::string_view::npos;) {
        const auto where = static_cast<std::size_t>(rest.data() - text.data()) + at;
        if (special.type != TokenType::user_defined && overlaps(options.plain, where, where + special.text.size())) {
          ++at;
          continue;
        }
        std::string_view before = rest.substr(0, at);
        if (special.strips_left) before = without_space_after(before);
        if (!before.empty()) next.push_back({before, no_token});
        next.push_back({rest.substr(at, special.text.size()), id});
        rest.remove_prefix(at + special.text.size());
        if (special.strips_right) rest = without_space_before(rest);
        found = true, at = 0;
      }
      if (!rest.empty()) next.push_back({rest, no_token});
    }
    if (found) fragments.swap(next);
  }

  const auto adds_space_to = [&](std::string_view fragment) {
    if (space_ == SpaceBefore::never || space_ == SpaceBefore::fragment) return space_ == SpaceBefore::fragment;
    if (fragment.starts_with(' ') || fragment.starts_with("\u2581")) return false;
    return space_ == SpaceBefore::word || fragment.data() == text.data();
  };
  std::vector<TokenId> out;
  if (options.add_special && adds_bos_) out.push_back(*bos_);
  bool after_special = true;
  for (const Fragment& fragment : fragments) {
    if (fragment.id != no_token)
      out.push_back(fragment.id);
    else if (model_ == Model::gpt2)
      encode_gpt2(fragment.text, out);
    else if (model_ == Model::bert)
      encode_bert(fragment.text, out);
    else if (model_ == Model::t5)
      encode_t5(fragment.text, out);
    else
      encode_llama(fragment.text, after_special && adds_space_to(fragment.text), out);
    after_special = fragment.id != no_token;
  }
  if (options.add_special && adds_eos_) out.push_back(*eos_);
  return out;
}

}  // namespace tessera
