// SPDX-License-Identifier: Apache-2.0
// JSON files of a model folder, read with errors that name the file and the key. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::hub {

inline constexpr std::uint64_t max_config_bytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t max_tokenizer_bytes = std::uint64_t{256} << 20;
inline constexpr int max_json_depth = 64;

/// Reads a text file of at most `most` bytes. Throws FormatError if it is longer, and the errors of InputFile.
std::string read_text_file(const std::string& path, std::uint64_t most);

/// An object in a JSON file. Copies share the document. A key with the value null counts as missing.
class JsonObject {
 public:
  /// Throws FormatError if the file is too long, is not JSON, is nested too deeply, or contains no object.
  static JsonObject read(const std::string& path, std::uint64_t most = max_config_bytes);
  /// Like read, but returns an empty object if the file does not exist.
  static JsonObject read_if_exists(const std::string& path, std::uint64_t most = max_config_bytes);
  /// Parses a text. `path` is used in messages.
  static JsonObject parse(std::string_view text, std::string path);

  const std::string& file() const { return document_->file; }
  const nlohmann::json& value() const { return *value_; }
  /// Returns the value of `key`, or null.
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Returns an integer. Throws FormatError if it is missing, of another type, or not in [low, high].
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise, std::int64_t low, std::int64_t high) const;
  /// Returns a finite number. Throws FormatError if it is missing or of another type.
  double number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string otherwise) const;
  /// Returns an object, or std::nullopt if the key is missing. Throws FormatError if it has another type.
  std::optional<JsonObject> object(std::string_view key) const;
  /// Returns an array. Throws FormatError if it is missing or has another type.
  const nlohmann::json& array(std::string_view key) const;
  /// Makes an object of a value inside of this one. `key` is used in messages.
  JsonObject within(const nlohmann::json& value, std::string_view key) const;
  /// Throws FormatError with the file and the key.
  [[noreturn]] void bad(std::string_view key, std::string wrong, std::string remedy = {}) const;

 private:
  struct Document {
    std::string file;
    nlohmann::json root;
  };
  const nlohmann::json& get(std::string_view key) const;
  [[noreturn]] void bad_type(std::string_view key, const nlohmann::json& value, std::string_view expected) const;

  std::shared_ptr<const Document> document_;
  const nlohmann::json* value_ = nullptr;
  std::string prefix_;  ///< the keys of the enclosing objects
};

}  // namespace tessera::hub
