// SPDX-License-Identifier: Apache-2.0
// Language models in the C interface.
#include <algorithm>

#include "tessera/c/status.h"
#include "tessera/llm/chat_session.h"
#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/language_model.h"

namespace tessera::c {

/// A model with its file, which contains chat templates and sampling options.
struct LoadedModel {
  GgufFile file;
  std::vector<Device> devices;
  LanguageModel model;
};

}  // namespace tessera::c

struct tessera_model {
  std::shared_ptr<const tessera::c::LoadedModel> loaded;
};
struct tessera_generation {
  tessera::GenerateResult result;
  std::string thinking, message;
};
struct tessera_chat {
  std::shared_ptr<const tessera::c::LoadedModel> loaded;
  tessera::ChatSession session;
};

namespace tessera::c {

namespace {

tessera_generate_options default_generate_options() {
  const GenerateOptions o;
  return {.size = sizeof(tessera_generate_options),
          .temperature = o.sampling.temperature,
          .top_k = o.sampling.top_k,
          .top_p = o.sampling.top_p,
          .min_p = o.sampling.min_p,
          .repeat_penalty = o.sampling.repeat_penalty,
          .seed = o.sampling.seed,
          .max_tokens = o.max_tokens,
          .context = o.context,
          .stop = nullptr,
          .stop_count = 0,
          .json_schema = nullptr};
}

GenerateOptions generate_options_of(const char* function, const tessera_generate_options* given) {
  const tessera_generate_options o = read_sized(function, given, default_generate_options());
  GenerateOptions out;
  out.sampling.temperature = o.temperature;
  out.sampling.top_k = o.top_k;
  out.sampling.top_p = o.top_p;
  out.sampling.min_p = o.min_p;
  out.sampling.repeat_penalty = o.repeat_penalty;
  out.sampling.seed = o.seed;
  out.max_tokens = o.max_tokens;
  out.context = o.context;
  for (const char* text : required_span(function, "stop", o.stop, o.stop_count))
    out.stop.emplace_back(&required(function, "a stop text", text));
  if (o.json_schema != nullptr)
    out.grammar =
        std::string_view(o.json_schema) == "{}" ? Grammar::json_object() : Grammar::from_json_schema(o.json_schema);
  return out;
}

const LoadedModel& model_of(const char* function, const tessera_model* model) {
  return *required(function, "model", model).loaded;
}

/// Calls the user's callback with a piece of text.
bool pass_text(tessera_text_callback on_text, void* user, std::string_view piece) {
  if (on_text == nullptr) return true;
  const std::string text(piece);  // ends with a zero byte
  return on_text(user, text.c_str(), text.size());
}

/// Sets the defaults of a structure that may have fewer fields than this library knows.
template <class T>
void set_defaults(T* options, std::size_t size, T defaults) {
  if (options == nullptr) return;
  defaults.size = size;
  std::memcpy(options, &defaults, std::min(size, sizeof(T)));
}

}  // namespace

}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

void tessera_init_load_options(tessera_load_options* options, size_t size) { set_defaults(options, size, {}); }
void tessera_init_generate_options(tessera_generate_options* options, size_t size) {
  set_defaults(options, size, default_generate_options());
}
void tessera_init_chat_options(tessera_chat_options* options, size_t size) { set_defaults(options, size, {}); }

tessera_status tessera_model_load(const char* path, const tessera_load_options* options, tessera_model** model) {
  const char* const self = __func__;
  return guard_result(self, model, [&] {
    const tessera_load_options o = read_sized(self, options, tessera_load_options{});
    LoadOptions how;
    for (const tessera_device& d : required_span(self, "devices", o.devices, o.device_count))
      how.devices.push_back(device_of(d));
    if (how.devices.empty()) how.devices.push_back(current_device());
    if (o.progress != nullptr)
      how.progress = [&o](const std::string&, std::uint64_t done, std::uint64_t total) {
        o.progress(o.user, done, total);
      };
    GgufFile file = GgufFile::open(&required(self, "path", path));
    LanguageModel loaded = LanguageModel::load(file, how);
    return new tessera_model{
        std::make_shared<const LoadedModel>(LoadedModel{std::move(file), how.devices, std::move(loaded)})};
  });
}
void tessera_model_free(tessera_model* model) { delete model; }

tessera_status tessera_get_model_info(const tessera_model* model, tessera_model_info* info) {
  const char* const self = __func__;
  return guard([&] {
    const LanguageModel& m = model_of(self, model).model;
    write_sized(self, "info", info,
                {.size = 0,
                 .architecture = m.model().config().architecture.c_str(),
                 .context_length = m.model().config().context_length,
                 .vocabulary = static_cast<std::int64_t>(m.tokenizer().size()),
                 .device = c_device(m.device()),
                 .load_seconds = m.load_seconds()});
  });
}
tessera_status tessera_model_tokenize(const tessera_model* model, const char* text, int32_t* tokens, size_t capacity,
                                      size_t* count) {
  const char* const self = __func__;
  return guard([&] {
    required(self, "count", count);
    if (capacity > 0) required(self, "tokens", tokens);
    const std::vector<TokenId> ids = model_of(self, model).model.tokenizer().encode(&required(self, "text", text));
    std::copy_n(ids.begin(), std::min(capacity, ids.size()), tokens);
    *count = ids.size();
  });
}
tessera_status tessera_model_detokenize(const tessera_model* model, const int32_t* tokens, size_t count, char** text) {
  const char* const self = __func__;
  return guard_result(self, text, [&] {
    return text_copy(model_of(self, model).model.tokenizer().decode(required_span(self, "tokens", tokens, count)));
  });
}

tessera_status tessera_get_generation_info(const tessera_generation* generation, tessera_generation_info* info) {
  const char* const self = __func__;
  return guard([&] {
    const tessera_generation& g = required(self, "generation", generation);
    write_sized(self, "info", info,
                {.size = 0,
                 .text = g.result.text.c_str(),
                 .thinking = g.thinking.c_str(),
                 .message = g.message.c_str(),
                 .tokens = g.result.tokens.data(),
                 .token_count = g.result.tokens.size(),
                 .prompt_tokens = g.result.prompt_tokens.size(),
                 .stop_reason = static_cast<std::int32_t>(g.result.reason),
                 .prompt_seconds = g.result.prompt_seconds,
                 .generate_seconds = g.result.generate_seconds});
  });
}
static_assert(static_cast<int>(StopReason::end_token) == TESSERA_STOP_END_TOKEN &&
              static_cast<int>(StopReason::stop_text) == TESSERA_STOP_TEXT);
void tessera_generation_free(tessera_generation* generation) { delete generation; }

tessera_status tessera_model_generate(const tessera_model* model, const char* prompt,
                                      const tessera_generate_options* options, tessera_text_callback on_text,
                                      void* user, tessera_generation** generation) {
  const char* const self = __func__;
  if (generation != nullptr) *generation = nullptr;
  return guard([&] {
    const GenerateOptions how = generate_options_of(self, options);
    GenerateResult result =
        model_of(self, model)
            .model.generate(std::string_view(&required(self, "prompt", prompt)), how,
                            [&](std::string_view piece) { return pass_text(on_text, user, piece); });
    if (generation != nullptr) *generation = new tessera_generation{std::move(result), {}, {}};
  });
}

tessera_status tessera_chat_create(const tessera_model* model, const tessera_chat_options* options,
                                   tessera_chat** chat) {
  const char* const self = __func__;
  return guard_result(self, chat, [&] {
    const tessera_chat_options o = read_sized(self, options, tessera_chat_options{});
    const auto loaded = required(self, "model", model).loaded;
    ChatOptions how;
    how.generate = generate_options_of(self, o.generate);
    if (o.generate == nullptr) how.generate.sampling = sampling_of(loaded->file);
    how.context =
        how.generate.context > 0 ? how.generate.context : default_context(loaded->file, loaded->devices, how.generate);
    if (o.tools != nullptr) how.prompt.tools = tools_of_json(o.tools, "the tools");
    if (o.template_arguments != nullptr) how.prompt.arguments = o.template_arguments;
    how.when_full = o.shift ? WhenFull::shift : WhenFull::refuse;
    ChatTemplate with =
        ChatTemplate::of(loaded->file, o.chat_template != nullptr ? o.chat_template : "", o.tools != nullptr);
    return new tessera_chat{loaded, ChatSession(loaded->model, std::move(with), how)};
  });
}
void tessera_chat_free(tessera_chat* chat) { delete chat; }
tessera_status tessera_chat_add(tessera_chat* chat, const char* role, const char* text) {
  const char* const self = __func__;
  return guard([&] {
    ChatMessage message{.role = &required(self, "role", role), .text = &required(self, "text", text)};
    required(self, "chat", chat).session.conversation.push_back(std::move(message));
  });
}
tessera_status tessera_chat_answer(tessera_chat* chat, tessera_text_callback on_text, void* user,
                                   tessera_generation** generation) {
  const char* const self = __func__;
  if (generation != nullptr) *generation = nullptr;
  return guard([&] {
    ChatAnswer answer = required(self, "chat", chat).session.answer([&](const ThinkingSplitter::Parts& parts) {
      return pass_text(on_text, user, parts.text);
    });
    if (generation == nullptr) return;
    answer.result.text = answer.message.text;
    *generation = new tessera_generation{std::move(answer.result), answer.message.thinking,
                                         to_json(Conversation{answer.message})};
  });
}
tessera_status tessera_chat_json(const tessera_chat* chat, char** json) {
  const char* const self = __func__;
  return guard_result(self, json,
                      [&] { return text_copy(to_json(required(self, "chat", chat).session.conversation)); });
}
tessera_status tessera_chat_set_json(tessera_chat* chat, const char* json) {
  const char* const self = __func__;
  return guard([&] {
    required(self, "chat", chat).session.conversation =
        conversation_of_json(&required(self, "json", json), "the conversation");
  });
}

}  // extern "C"
