// SPDX-License-Identifier: Apache-2.0
#include "serve/embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tessera::app {
namespace {

constexpr std::size_t most_inputs = 2048;
// The longest response. A number takes at most this number of bytes as text and as base64.
constexpr std::size_t longest_response = std::size_t{48} << 20, bytes_as_text = 24, bytes_as_base64 = 6;

std::string base64(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? bytes[i + k] : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= count ? digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

/// Rejects fields of other servers that would change the embedding.
void reject_other_embeddings(const Fields& fields, const RequestDefaults& defaults) {
  const auto reject = [&](const char* name, const char* remedy) {
    fields.reject(name, fmt::format("this value is not supported. {}", remedy), "unsupported_field");
  };
  if (fields.find("truncate_prompt_tokens")) reject("truncate_prompt_tokens", "A text is never shortened.");
  if (const Json* const norm = fields.find("embd_normalize"); norm && *norm != 2)
    reject("embd_normalize", "Embeddings have the Euclidean length 1.");
  if (const Json* const norm = fields.find("normalize"); norm && *norm != true)
    reject("normalize", "Embeddings have the length 1.");
  const auto dimensions = fields.integer("dimensions", 1, INT32_MAX);
  if (dimensions && *dimensions != defaults.width)
    fields.reject("dimensions", fmt::format("the embeddings of this model have {} dimensions.", defaults.width),
                  "unsupported_field");
}

}  // namespace

EmbeddingRequest parse_embedding_request(const Json& body, const RequestDefaults& defaults) {
  const Fields fields(body);
  EmbeddingRequest out;
  check_model(fields, defaults);
  reject_other_embeddings(fields, defaults);
  const auto format = fields.string("encoding_format");
  if (format && *format != "float" && *format != "base64")
    fields.reject("encoding_format", R"(expected "float" or "base64".)");
  out.is_base64 = format == "base64";
  const std::size_t bytes =
      static_cast<std::size_t>(defaults.width) * (out.is_base64 ? bytes_as_base64 : bytes_as_text);
  const std::size_t most = std::clamp<std::size_t>(longest_response / std::max<std::size_t>(bytes, 1), 1, most_inputs);
  out.inputs = parse_prompts(fields, "input", most, defaults.vocabulary);
  out.salt = parse_salt(fields);
  return out;
}

PreparedRequest prepare_embedding(const EmbeddingRequest& request, const RequestDefaults& defaults) {
  PreparedRequest out;
  out.text.embeds = true;
  out.text.salt = request.salt;
  out.answer.kind = AnswerKind::embeddings;
  out.answer.model = defaults.model;
  out.answer.is_base64 = request.is_base64;
  out.answer.prompts = out.answer.sequences = request.inputs.size();
  return out;
}

Json embedding_json(std::span<const float> values, bool is_base64) {
  if (!is_base64) return Json(std::vector<float>(values.begin(), values.end()));
  std::vector<std::uint8_t> bytes;
  for (const float v : values)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(v) >> shift));
  return base64(bytes);
}

}  // namespace tessera::app
