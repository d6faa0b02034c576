// SPDX-License-Identifier: Apache-2.0
#include "serve/tokenizer_requests.h"

#include "serve/openai_request.h"

namespace tessera::app {

Json answer_tokenize(const Json& body, const Tokenizer& tokenizer, std::int64_t context) {
  const Fields fields(body);
  const char* const name = fields.find("prompt") ? "prompt" : "content";
  const auto text = fields.string(name);
  if (!text) fields.reject(name, "this field is required.");
  const std::vector<TokenId> tokens =
      tokenizer.encode(*text, {.add_special = fields.boolean("add_special").value_or(false),
                               .parse_special = fields.boolean("parse_special").value_or(true)});
  Json list = Json::array();
  const bool pieces = fields.boolean("with_pieces").value_or(false);
  for (const TokenId id : tokens)
    list.push_back(pieces ? Json{{"id", id}, {"piece", tokenizer.decode(id, true)}} : Json(id));
  return {{"tokens", std::move(list)}, {"count", tokens.size()}, {"max_model_len", context}};
}

Json answer_detokenize(const Json& body, const Tokenizer& tokenizer) {
  const Fields fields(body);
  const Json* const list = fields.list("tokens");
  if (!list) fields.reject("tokens", "this field is required.");
  return {{"content",
           tokenizer.decode(parse_tokens(fields, "tokens", *list, static_cast<std::int64_t>(tokenizer.size())), true)}};
}

}  // namespace tessera::app
