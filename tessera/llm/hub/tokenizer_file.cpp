// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/hub/pre_tokenizer.h"
#include "tessera/llm/tokenizer.h"

namespace tessera::hub {
namespace {

using nlohmann::json;

constexpr std::int64_t most_tokens = std::int64_t{1} << 24;
/// Ids may have gaps, but not many, so that a file cannot claim a huge vocabulary.
constexpr std::size_t most_unused = 65536;

class TokenizerReader {
 public:
  TokenizerReader(const TokenizerFiles& files, Metadata& to) : files_(files), file_(files.tokenizer), to_(to) {}

  void read() {
    const auto model = file_.object("model");
    if (!model) file_.bad("model", "the key is missing", "The tokenizer cannot be read without it");
    const std::string type = model->text_or("type", "BPE");
    if (type == "WordPiece") return read_word_pieces(*model);
    if (type == "Unigram") return read_unigrams(*model);
    check_model(*model, type);
    byte_level_ = is_byte_level(file_);
    if (!byte_level_ && !model->flag_or("byte_fallback", false))
      model->bad("byte_fallback", "BPE without byte fallback and without byte-level text is not supported");
    read_vocabulary(*model);
    read_added();
    if (byte_level_ && uses_nfc(file_)) to_.set(std::string(nfc_key), true);
    if (byte_level_)
      to_.set("tokenizer.ggml.pre", pre_tokenizer_name(file_, model->flag_or("ignore_merges", false)));
    else
      read_spaces(*model);
    add_merges(*model);
    add_special(*model);
    add_tokens(byte_level_ ? "gpt2" : "llama");
  }

 private:
  void add_tokens(const char* model) {
    to_.set("tokenizer.ggml.model", std::string(model));
    to_.set("tokenizer.ggml.tokens", GgufArray{std::move(tokens_)});
    std::vector<std::int32_t> types;
    for (const TokenType t : types_) types.push_back(static_cast<std::int32_t>(t));
    to_.set("tokenizer.ggml.token_type", GgufArray{std::move(types)});
  }

  /// In GGUF files, the first token of a word begins with U+2581, and the others have no mark.
  void read_word_pieces(const JsonObject& model) {
    if (const std::string mark = model.text_or("continuing_subword_prefix", "##"); mark != "##")
      model.bad("continuing_subword_prefix", fmt::format("{} is not supported; expected ##", quote_text(mark)));
    if (const auto most = model.integer_or("max_input_chars_per_word", 100, 0, most_tokens); most != 100)
      model.bad("max_input_chars_per_word", fmt::format("{} is not supported; expected 100", most));
    const BertText text = bert_text(file_);
    to_.set("tokenizer.ggml.normalizer.lowercase", text.lowercase);
    to_.set("tokenizer.ggml.normalizer.strip_accents", text.strips_accents);
    read_vocabulary(model);
    read_added();
    std::optional<std::int64_t> before, after;
    bool found = false;
    read_template(before, after, found);
    if (!before || !after) file_.bad("post_processor", "a token before the text and one after it are needed");
    to_.set_count("tokenizer.ggml.cls_token_id", *before);
    to_.set_count("tokenizer.ggml.seperator_token_id", *after);
    add_special(model);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] != TokenType::normal) continue;
      std::string& token = tokens_[i];
      token = token.starts_with("##") ? token.substr(2) : "\u2581" + token;
    }
    add_tokens("bert");
  }

  void read_unigrams(const JsonObject& model) {
    if (model.flag_or("byte_fallback", false))
      model.bad("byte_fallback", "Unigram vocabularies with bytes are not supported");
    std::vector<float> scores;
    for (const json& entry : model.array("vocab")) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        model.bad("vocab", fmt::format("entry {} is not a text and a score", scores.size()));
      set_token(model, "vocab", std::ssize(scores), entry[0].get<std::string>(), TokenType::normal);
      scores.push_back(entry[1].get<float>());
    }
    if (scores.empty()) model.bad("vocab", "the vocabulary is empty");
    const std::int64_t unknown = model.integer("unk_id", 0, std::ssize(scores) - 1);
    to_.set("tokenizer.ggml.precompiled_charsmap", GgufArray{unigram_charsmap(file_)});
    to_.set("tokenizer.ggml.remove_extra_whitespaces", true);
    to_.set("tokenizer.ggml.add_space_prefix", true);
    read_added();
    add_special(model);
    types_[static_cast<std::size_t>(unknown)] = TokenType::unknown;
    to_.set_count("tokenizer.ggml.unknown_token_id", unknown);
    scores.resize(tokens_.size());
    to_.set("tokenizer.ggml.scores", GgufArray{std::move(scores)});
    add_tokens("t5");
  }

  static void check_model(const JsonObject& model, const std::string& type) {
    if (type != "BPE")
      model.bad("type", fmt::format("the tokenizer {} is not supported", quote_text(type)),
                "Supported tokenizers: BPE with byte-level text or byte fallback, WordPiece and Unigram");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!model.text_or(affix, "").empty()) model.bad(affix, "marks of subwords are not supported");
    if (model.number_or("dropout", 0) != 0) model.bad("dropout", "random merges are not supported");
  }

  /// Sets the token of an id. An id may be set twice with the same text.
  void set_token(const JsonObject& where, std::string_view key, std::int64_t id, const std::string& text,
                 TokenType type) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens_.size()) tokens_.resize(at + 1), types_.resize(at + 1, TokenType::unused);
    if (types_[at] != TokenType::unused && tokens_[at] != text)
      where.bad(key, fmt::format("the id {} belongs to {} and to {}", id, quote_text(tokens_[at]), quote_text(text)));
    tokens_[at] = text, types_[at] = type;
  }

  void read_vocabulary(const JsonObject& model) {
    const auto vocabulary = model.object("vocab");
    if (!vocabulary) model.bad("vocab", "the key is missing", "The tokenizer cannot be read without it");
    const auto most = static_cast<std::int64_t>(vocabulary->value().size() + most_unused);
    for (const auto& [text, id] : vocabulary->value().items()) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(most))
        vocabulary->bad(text, fmt::format("the id is {}; expected an integer below {}", quote_text(id.dump()), most));
      const bool byte = !byte_level_ && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
      set_token(*vocabulary, text, id.get<std::int64_t>(), text, byte ? TokenType::byte : TokenType::normal);
    }
    if (tokens_.empty()) model.bad("vocab", "the vocabulary is empty");
  }

  void read_added() {
    if (!file_.has("added_tokens")) return;
    const json& added = file_.array("added_tokens");
    const auto most = static_cast<std::int64_t>(
        std::min<std::size_t>(tokens_.size() + added.size() + most_unused, static_cast<std::size_t>(most_tokens)));
    const std::int64_t embeddings = files_.config.integer_or("vocab_size", most_tokens, 1, std::int64_t{1} << 30);
    std::size_t index = 0;
    for (const json& entry : added) {
      const JsonObject token = file_.within(entry, fmt::format("added_tokens[{}]", index++));
      const std::int64_t id = token.integer("id", 0, most);
      // Models of text have no embeddings for the tokens of images that some tokenizers have, such as that of Gemma 3.
      if (id >= embeddings) continue;
      const std::string text = token.text("content");
      if (text.empty()) token.bad("content", "the token has no text");
      if (token.flag_or("single_word", false))
        token.bad("single_word", "tokens that match only words are not supported");
      set_token(token, "id", id, text, token.flag_or("special", false) ? TokenType::control : TokenType::user_defined);
      if (token.flag_or("lstrip", false)) strips_left_.push_back(static_cast<std::int32_t>(id));
      if (token.flag_or("rstrip", false)) strips_right_.push_back(static_cast<std::int32_t>(id));
    }
    to_.set(std::string(strips_left_key), GgufArray{std::move(strips_left_)});
    to_.set(std::string(strips_right_key), GgufArray{std::move(strips_right_)});
  }

  void read_spaces(const JsonObject& model) {
    if (model.flag_or("ignore_merges", false))
      model.bad("ignore_merges", "this option is supported only for byte-level BPE");
    const json& vocabulary = *model.find("vocab");
    for (int byte = 0; byte < 256; ++byte)
      if (!vocabulary.contains(fmt::format("<0x{:02X}>", byte)))
        model.bad("vocab", fmt::format("byte_fallback is true, but the token <0x{:02X}> is missing", byte));
    to_.set(std::string(ranks_key), true);
    const std::string when = space_before(file_);
    to_.set("tokenizer.ggml.add_space_prefix", !when.empty());
    if (!when.empty()) to_.set(std::string(space_key), when);
  }

  void add_merges(const JsonObject& model) {
    std::vector<std::string> lines;
    for (const json& merge : model.array("merges")) {
      std::string line;
      if (merge.is_string())
        line = merge.get<std::string>();
      else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
        line = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      if (std::ranges::count(line, ' ') != 1 || line.front() == ' ' || line.back() == ' ')
        model.bad("merges", fmt::format("merge {} is {}; expected two tokens without spaces", lines.size(),
                                        quote_text(merge.dump(-1, ' ', false, json::error_handler_t::replace))));
      lines.push_back(std::move(line));
    }
    to_.set("tokenizer.ggml.merges", GgufArray{std::move(lines)});
  }

  std::optional<std::int64_t> find(std::string_view text) const {
    const auto it = std::ranges::find(tokens_, text);
    return it == tokens_.end() || text.empty() ? std::nullopt : std::optional(it - tokens_.begin());
  }

  /// Returns the id of a special token that tokenizer_config.json names by its text or by an object with `content`.
  std::optional<std::int64_t> named(const char* key) const {
    const json* const value = files_.settings.find(key);
    if (value == nullptr) return std::nullopt;
    const std::string text =
        value->is_object() ? files_.settings.object(key)->text("content") : files_.settings.text(key);
    const auto id = find(text);
    if (!id && !text.empty()) files_.settings.bad(key, fmt::format("{} is not in the vocabulary", quote_text(text)));
    return id;
  }

  /// Returns the ids of a key of config.json, which may be a number or a list.
  std::vector<std::int64_t> ids_of(const JsonObject& config, const char* key) const {
    const json* const value = config.find(key);
    if (value == nullptr) return {};
    std::vector<std::int64_t> ids;
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= tokens_.size())
        config.bad(key,
                   fmt::format("{} is not the id of a token; the vocabulary has {} tokens",
                               quote_text(id.dump(-1, ' ', false, json::error_handler_t::replace)), tokens_.size()));
      ids.push_back(id.get<std::int64_t>());
    }
    return ids;
  }

  /// Reads which tokens are added around a text: `before` and `after` are their ids.
  void read_template(std::optional<std::int64_t>& before, std::optional<std::int64_t>& after, bool& found) const {
    const auto whole = file_.object("post_processor");
    if (!whole) return;
    std::vector<JsonObject> steps{*whole};
    if (whole->text("type") == "Sequence") {
      steps.clear();
      for (const json& step : whole->array("processors"))
        steps.push_back(whole->within(step, fmt::format("processors[{}]", steps.size())));
    }
    for (const JsonObject& step : steps) {
      const std::string type = step.text("type");
      if (type == "ByteLevel") continue;
      if (type == "BertProcessing" || type == "RobertaProcessing") {
        found = true;
        for (const auto& [key, to] : {std::pair("cls", &before), std::pair("sep", &after)}) {
          const json& named = step.array(key);  // the text and the id
          *to = named.empty() || !named[0].is_string() ? std::nullopt : find(named[0].get<std::string>());
          if (!*to) step.bad(key, "the token is not in the vocabulary");
        }
        continue;
      }
      if (type != "TemplateProcessing") step.bad("type", fmt::format("{} is not supported", quote_text(type)));
      found = true;
      bool text_seen = false;
      for (const json& piece : step.array("single")) {
        const JsonObject part = step.within(piece, "single");
        if (part.has("Sequence")) {
          text_seen = true;
          continue;
        }
        auto& to = text_seen ? after : before;
        const auto special = part.object("SpecialToken");
        const auto id = special ? find(special->text("id")) : std::nullopt;
        if (!id || to) step.bad("single", "only one known token before the text and one after it are supported");
        to = id;
      }
    }
  }

  void add_special(const JsonObject& model) {
    const auto set_id = [&](const char* key, std::optional<std::int64_t> id) {
      if (id) to_.set_count(std::string("tokenizer.ggml.") + key, *id);
    };
    if (model.has("unk_token")) {
      const auto unknown = find(model.text("unk_token"));
      if (!unknown) model.bad("unk_token", "the token is not in the vocabulary");
      set_id("unknown_token_id", unknown);
      types_[static_cast<std::size_t>(*unknown)] = TokenType::unknown;
    }
    std::vector<std::int64_t> ends = ids_of(files_.generation, "eos_token_id");
    for (const JsonObject* config : {&files_.config, &files_.whole})
      if (ends.empty()) ends = ids_of(*config, "eos_token_id");
    auto bos = named("bos_token"), eos = named("eos_token");
    for (const JsonObject* config : {&files_.config, &files_.whole})
      if (const auto ids = ids_of(*config, "bos_token_id"); !bos && !ids.empty()) bos = ids.front();
    if (!eos && !ends.empty()) eos = ends.front();
    std::optional<std::int64_t> before, after;
    bool found = false;
    read_template(before, after, found);
    if (before) bos = before;
    if (after) eos = after;
    set_id("bos_token_id", bos), set_id("eos_token_id", eos);
    to_.set("tokenizer.ggml.add_bos_token",
            found ? before.has_value() : bos && files_.settings.flag_or("add_bos_token", false));
    to_.set("tokenizer.ggml.add_eos_token",
            found ? after.has_value() : eos && files_.settings.flag_or("add_eos_token", false));
    if (eos) ends.push_back(*eos);
    to_.set(std::string(ends_key), GgufArray{std::vector<std::int32_t>(ends.begin(), ends.end())});
  }

  const TokenizerFiles& files_;
  const JsonObject& file_;
  Metadata& to_;
  bool byte_level_ = false;
  std::vector<std::string> tokens_;
  std::vector<TokenType> types_;
  std::vector<std::int32_t> strips_left_, strips_right_;
};

}  // namespace

void add_tokenizer(const TokenizerFiles& files, Metadata& to) { TokenizerReader(files, to).read(); }

}  // namespace tessera::hub
