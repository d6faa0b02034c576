// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "serve/api_error.h"
#include "tessera/base/error.h"
#include "tessera/base/sha256.h"
#include "tessera/llm/grammar/grammar.h"

namespace tessera::app {
namespace {

/// A member that changes the result and is not supported.
struct Unsupported {
  const char* name;
  const char* remedy;
};
constexpr const char* no_grammar = "Use response_format or grammar.";
constexpr Unsupported unsupported[] = {
    {"guided_regex", no_grammar},
    {"guided_choice", no_grammar},
    {"structured_outputs", no_grammar},
    {"functions", "Use tools."},
    {"function_call", "Use tool_choice."},
    {"best_of", "Use n."},
    {"truncate_prompt_tokens", "A prompt is never shortened."},
    {"include_stop_str_in_output", ""},
    {"top_n_sigma", ""},
    {"t_max_predict_ms", ""},
    {"logits_processors", ""},
    {"return_token_ids", ""},
    {"prompt_logprobs", "Only tokens of the answer have log probabilities."},
    {"n_predict", "Use max_tokens."},
    {"n_probs", "Use logprobs."},
    {"min_tokens", "Use logit_bias to suppress the end token."},
    {"ignore_eos", "Use logit_bias to suppress the end token."},
    {"stop_token_ids", "Use stop."},
    {"bad_words", "Use logit_bias."},
    {"allowed_token_ids", "Use logit_bias."},
    {"use_beam_search", ""},
    {"length_penalty", ""},
    {"mirostat", ""},
    {"typical_p", ""},
    {"tfs_z", ""},
    {"xtc_probability", ""},
    {"dry_multiplier", ""},
    {"dynatemp_range", ""},
    {"lora", "Adapters are not supported."},
    {"audio", "The model writes only text."},
    {"web_search_options", ""},
    {"verbosity", ""},
    {"documents", "Write them into a message."},
    {"chat_template", "The server's template is used (--template)."},
    {"continue_final_message", ""},
};

/// True for values that are the same as no value.
bool is_neutral(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  return value.is_null() || value.empty() || value == "";
}

void reject_unsupported(const Fields& fields) {
  for (const Unsupported& u : unsupported) {
    const Json* const value = fields.find(u.name);
    if (!value || is_neutral(*value)) continue;
    const std::string_view name = u.name;
    const bool one_is_neutral = name == "best_of" || name == "length_penalty" || name == "typical_p" || name == "tfs_z";
    if (one_is_neutral && value->is_number() && value->get<double>() == 1) continue;
    fields.reject(u.name, fmt::format("this field is not supported.{}{}", *u.remedy ? " " : "", u.remedy),
                  "unsupported_field");
  }
  if (const Json* const modalities = fields.list("modalities"); modalities && *modalities != Json::array({"text"}))
    fields.reject("modalities", R"(only ["text"] is supported.)", "unsupported_field");
}

std::optional<std::int64_t> parse_max_tokens(const Fields& fields, std::int64_t least) {
  const auto most = fields.integer("max_completion_tokens", least, INT32_MAX);
  return most ? most : fields.integer("max_tokens", least, INT32_MAX);
}

/// Compiles the grammar that a field contains. Throws ApiError 400 with the place of an error.
std::shared_ptr<const Grammar> compile(const Fields& fields, const char* name, const auto& make) {
  try {
    return make();
  } catch (const FormatError& e) {
    fields.reject(name, e.what(), "invalid_grammar");
  }
}

std::shared_ptr<const Grammar> parse_response_format(const Fields& fields) {
  const Json* const format = fields.object("response_format");
  if (!format) return nullptr;
  const Fields members(*format, fields.path("response_format."));
  const auto type = members.string("type");
  if (type == "text") return nullptr;
  if (type == "json_object") {
    const Json* const schema = members.find("schema");  // as llama-server
    if (!schema) return Grammar::json_object();
    return compile(members, "schema", [&] { return Grammar::from_json_schema(json_text(*schema), "schema"); });
  }
  if (type != "json_schema") members.reject("type", "expected text, json_object or json_schema.");
  const Json* const schema = members.object("json_schema");
  if (!schema) members.reject("json_schema", "this field is required.");
  const Fields parts(*schema, members.path("json_schema."));
  const Json* const text = parts.find("schema");
  if (!text) parts.reject("schema", "this field is required.");
  return compile(parts, "schema", [&] { return Grammar::from_json_schema(json_text(*text), "schema"); });
}

/// Returns the grammar of the answer: that of response_format, or of the fields of llama-server and vLLM.
std::shared_ptr<const Grammar> parse_grammar(const Fields& fields) {
  std::shared_ptr<const Grammar> found = parse_response_format(fields);
  const auto add = [&](const char* name, const auto& make) {
    const Json* const value = fields.find(name);
    if (!value || *value == "") return;
    if (found) fields.reject(name, "only one field can determine the form of the answer.");
    found = compile(fields, name, [&] { return make(*value); });
  };
  const auto of_schema = [](const Json& schema) {
    return Grammar::from_json_schema(schema.is_string() ? schema.get<std::string>() : json_text(schema), "schema");
  };
  for (const char* name : {"json_schema", "guided_json"}) add(name, of_schema);
  for (const char* name : {"grammar", "guided_grammar"})
    add(name, [&](const Json&) { return Grammar::from_gbnf(*fields.string(name), "grammar"); });
  return found;
}

void parse_stop(const Fields& fields, std::vector<std::string>& stop) {
  const Json* const value = fields.find("stop");
  if (!value) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > most_stops)
    fields.reject("stop", fmt::format("there are {} strings; at most {} are allowed.", list.size(), most_stops));
  for (const Json& one : list) {
    if (!one.is_string())
      fields.reject("stop", fmt::format("expected a string or a list of strings, but {} occurs.", json_type(one)));
    if (one == "") fields.reject("stop", "a stop string must not be empty.");
    stop.push_back(one.get<std::string>());
  }
}

void parse_biases(const Fields& fields, const RequestDefaults& defaults, SamplerOptions& sampling) {
  const Json* const biases = fields.object("logit_bias");
  if (!biases) return;
  if (biases->size() > most_biases)
    fields.reject("logit_bias",
                  fmt::format("there are {} entries; at most {} are allowed.", biases->size(), most_biases));
  for (const auto& [key, value] : biases->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size() || id < 0 || id >= defaults.vocabulary)
      fields.reject("logit_bias",
                    fmt::format("a key is not a token id; ids are from 0 to {}.", defaults.vocabulary - 1));
    const double bias = value.is_number() ? value.get<double>() : 1000;
    if (!(bias >= -100 && bias <= 100)) fields.reject("logit_bias", "a value is not a number from -100 to 100.");
    sampling.logit_bias.emplace_back(id, bias);
  }
}

void parse_penalties(const Fields& fields, SamplerOptions& s) {
  s.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(s.frequency_penalty);
  s.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(s.presence_penalty);
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    s.repeat_penalty = fields.number(name, 0.01, 100).value_or(s.repeat_penalty);
  s.penalty_last = fields.integer("repeat_last_n", -1, 1'000'000'000).value_or(s.penalty_last);
}

void parse_sampler(const Fields& fields, const RequestDefaults& defaults, SamplerOptions& s) {
  s = defaults.sampling;
  s.temperature = fields.number("temperature", 0, 100).value_or(s.temperature);
  // 0 keeps only the likeliest token.
  if (const auto p = fields.number("top_p", 0, 1)) s.top_p = std::max(*p, std::numeric_limits<double>::min());
  if (const auto k = fields.integer("top_k", -1, 1'000'000'000)) s.top_k = std::max<std::int64_t>(*k, 0);
  s.min_p = fields.number("min_p", 0, 1).value_or(s.min_p);
  parse_penalties(fields, s);
  parse_biases(fields, defaults, s);
  const auto seed =
      fields.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  s.seed = seed ? static_cast<std::uint64_t>(*seed) : defaults.seed ? *defaults.seed : std::random_device{}();
}

void parse_sampling_request(const Fields& fields, const RequestDefaults& defaults, SamplingRequest& out) {
  reject_unsupported(fields);
  check_model(fields, defaults);
  parse_sampler(fields, defaults, out.sampling);
  out.grammar = parse_grammar(fields);
  out.sequences = fields.integer("n", 1, most_sequences).value_or(1);
  out.stop = defaults.stop;
  parse_stop(fields, out.stop);
  out.salt = parse_salt(fields);
  out.stream = fields.boolean("stream").value_or(false);
  if (const Json* const options = fields.object("stream_options")) {
    const Fields members(*options, "stream_options.");
    out.include_usage = members.boolean("include_usage").value_or(false);
  }
}

/// Returns the text of "content": a string, or a list of text parts.
std::string parse_content(const Fields& message) {
  const Json* const content = message.find("content");
  if (!content) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) message.reject("content", "expected a string or a list of text parts.");
  std::string out;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", message.path("content"), i);
    if (!(*content)[i].is_object()) message.reject("content", fmt::format("part {} is not an object.", i));
    const Fields part((*content)[i], path + ".");
    const auto type = part.string("type");
    if (type != "text") part.reject("type", R"(only parts of the type "text" are supported.)", "unsupported_field");
    const auto text = part.string("text");
    if (!text) part.reject("text", "this field is required.");
    out += *text;
  }
  return out;
}

ToolCall parse_call(const Fields& call) {
  const Json* const function = call.object("function");
  if (!function) call.reject("function", "this field is required.");
  const Fields members(*function, call.path("function."));
  const auto name = members.string("name");
  if (!name || name->empty()) members.reject("name", "this field is required.");
  const Json* const given = members.find("arguments");
  std::string text = !given ? "{}" : given->is_string() ? given->get<std::string>() : json_text(*given);
  if (text.empty()) text = "{}";
  const auto arguments = json_object(text);
  if (!arguments) members.reject("arguments", "expected a string that contains a JSON object.");
  return {call.string("id").value_or(""), *name, *arguments};
}

std::string role_of(const Fields& message) {
  const auto role = message.string("role");
  if (!role) message.reject("role", "this field is required.");
  if (*role == "developer") return "system";
  for (const char* known : {"system", "user", "assistant", "tool"})
    if (*role == known) return known;
  message.reject("role", "expected system, developer, user, assistant or tool.");
}

ChatMessage parse_message(const Fields& message, const Conversation& before) {
  ChatMessage out{.role = role_of(message), .text = parse_content(message)};
  out.name = message.string("name").value_or("");
  if (out.role == "assistant") {
    out.thinking = message.string("reasoning_content").value_or("");
    if (const Json* const calls = message.list("tool_calls"))
      for (std::size_t i = 0; i < calls->size(); ++i) {
        if (!(*calls)[i].is_object()) message.reject("tool_calls", fmt::format("call {} is not an object.", i));
        out.calls.push_back(parse_call(Fields((*calls)[i], fmt::format("{}[{}].", message.path("tool_calls"), i))));
      }
  }
  if (out.role == "tool") {
    out.call_id = message.string("tool_call_id").value_or("");
    for (const ChatMessage& m : before)
      for (const ToolCall& c : m.calls)
        if (out.name.empty() && c.id == out.call_id) out.name = c.name;
  }
  if (!message.find("content") && out.calls.empty()) message.reject("content", "this field is required.");
  return out;
}

/// Returns the name in {"type": "function", "function": {"name": ...}}.
std::string parse_named_choice(const Fields& fields, const Json& choice) {
  if (!choice.is_object())
    fields.reject("tool_choice",
                  R"(expected "auto", "none", "required", or {"type": "function", "function": {"name": ...}}.)");
  const Fields members(choice, fields.path("tool_choice."));
  if (members.string("type") != "function")
    members.reject("type", R"(only "function" is supported.)", "unsupported_field");
  const Json* const function = members.object("function");
  if (!function) members.reject("function", "this field is required.");
  const Fields parts(*function, members.path("function."));
  const auto name = parts.string("name");
  if (!name) parts.reject("name", "this field is required.");
  return *name;
}

bool is_plain_text(const std::string& text) {
  return text.size() <= 256 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view(" _.,:+-").find(c) != std::string_view::npos;
         });
}

}  // namespace

Conversation parse_messages(const Fields& fields) {
  const Json* const messages = fields.list("messages");
  if (!messages || messages->empty()) fields.reject("messages", "expected a list of at least one message.");
  Conversation out;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    if (!(*messages)[i].is_object()) fields.reject("messages", fmt::format("message {} is not an object.", i));
    out.push_back(parse_message(Fields((*messages)[i], fmt::format("messages[{}].", i)), out));
  }
  return out;
}

ToolRequest parse_tools(const Fields& fields) {
  ToolRequest out;
  const Json* const tools = fields.list("tools");
  if (tools && !tools->empty()) try {
      out.tools = tools_of_json(json_text(*tools), "tools");
    } catch (const FormatError& e) {
      fields.reject("tools", e.what());
    }
  const Json* const choice = fields.find("tool_choice");
  if (!choice || *choice == "auto") return out;
  if (*choice == "none") return {};
  const std::optional<std::string> name =
      *choice == "required" ? std::nullopt : std::optional(parse_named_choice(fields, *choice));
  if (out.tools.empty()) fields.reject("tool_choice", "there are no tools.");
  const Json all = Json::parse(out.tools);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json& function = all[i]["function"];
    if (name && function["name"] != *name) continue;
    out.required.push_back({function["name"].get<std::string>(),
                            function.contains("parameters") ? json_text(function["parameters"]) : std::string(),
                            fmt::format("tools[{}].function.parameters", i)});
  }
  out.is_named = name.has_value();
  if (out.required.empty()) fields.reject("tool_choice", "there is no tool with this name.");
  std::size_t bytes = 0;
  for (const CallableFunction& f : out.required) bytes += f.parameters.size();
  if (out.required.size() > most_required_tools || bytes > most_required_bytes)
    fields.reject("tools",
                  fmt::format("there are {} tools with {} bytes of parameters; if a call is required, at most {} "
                              "tools and {} bytes are allowed.",
                              out.required.size(), bytes, most_required_tools, most_required_bytes));
  return out;
}

std::string parse_template_arguments(const Fields& fields) {
  const Json* const given = fields.object("chat_template_kwargs");
  Json out = given ? *given : Json::object();
  for (const auto& [name, value] : out.items()) {
    for (const char* own : {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})
      if (name == own) fields.reject("chat_template_kwargs", fmt::format("{} is set by the server.", own));
    const bool plain = value.is_boolean() || value.is_number() || value.is_null() ||
                       (value.is_string() && is_plain_text(value.get<std::string>()));
    if (!plain || !is_plain_text(name))
      fields.reject("chat_template_kwargs",
                    "values must be true, false, numbers, or texts of at most 256 letters, digits, spaces and _.,:+-");
  }
  if (const auto effort = fields.string("reasoning_effort"); effort && !out.contains("reasoning_effort")) {
    if (!is_plain_text(*effort)) fields.reject("reasoning_effort", "expected a word such as \"low\" or \"high\".");
    out["reasoning_effort"] = *effort;
  }
  return out.empty() ? std::string() : json_text(out);
}

std::vector<TokenId> parse_tokens(const Fields& fields, const char* name, const Json& list, std::int64_t vocabulary) {
  std::vector<TokenId> out;
  out.reserve(list.size());
  for (const Json& one : list) {
    const bool known = one.is_number_integer() && one >= 0 && one < vocabulary;
    if (!known) fields.reject(name, fmt::format("expected token ids from 0 to {}.", vocabulary - 1));
    out.push_back(one.get<TokenId>());
  }
  return out;
}

std::vector<RequestPrompt> parse_prompts(const Fields& fields, const char* name, std::size_t most,
                                         std::int64_t vocabulary) {
  const Json* const prompt = fields.find(name);
  if (!prompt) fields.reject(name, "this field is required.");
  // A list is either one prompt of token ids, or several prompts.
  const bool several = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  const Json list = several ? *prompt : Json::array({*prompt});
  if (list.size() > most)
    fields.reject(name, fmt::format("there are {} texts; at most {} are allowed.", list.size(), most));
  std::vector<RequestPrompt> out;
  for (const Json& one : list) {
    if (one.is_string())
      out.emplace_back(one.get<std::string>());
    else if (one.is_array())
      out.emplace_back(parse_tokens(fields, name, one, vocabulary));
    else
      fields.reject(name, "expected a string, a list of token ids, or a list of these.");
  }
  return out;
}

std::uint64_t parse_salt(const Fields& fields) {
  const auto salt = fields.string("cache_salt");
  if (!salt || salt->empty()) return 0;
  return std::stoull(sha256(*salt).substr(0, 16), nullptr, 16) | 1;  // 0: the cache of requests without a salt
}

void require_model(const std::string& name, const RequestDefaults& defaults) {
  if (name != defaults.model)
    throw ApiError(404, fmt::format("model: there is no model with this name; this server has {}.", defaults.model),
                   "model", "model_not_found");
}

Json model_json(const RequestDefaults& defaults, std::int64_t created) {
  return {{"id", defaults.model},
          {"object", "model"},
          {"created", created},
          {"owned_by", "tessera"},
          {"max_model_len", defaults.context}};
}

void check_model(const Fields& fields, const RequestDefaults& defaults) {
  if (const auto model = fields.string("model")) require_model(*model, defaults);
}

ChatRequest parse_chat_request(const Json& body, const RequestDefaults& defaults) {
  const Fields fields(body);
  ChatRequest out;
  parse_sampling_request(fields, defaults, out);
  if (fields.boolean("echo").value_or(false))
    fields.reject("echo", "this field is not supported.", "unsupported_field");
  if (const Json* const suffix = fields.find("suffix"); suffix && !is_neutral(*suffix))
    fields.reject("suffix", "this field is not supported. Use /v1/completions.", "unsupported_field");
  out.max_tokens = parse_max_tokens(fields, 1).value_or(defaults.context);
  const auto likeliest = fields.integer("top_logprobs", 0, most_log_probabilities);
  if (fields.boolean("logprobs").value_or(false))
    out.log_probabilities = likeliest.value_or(0);
  else if (likeliest.value_or(0) > 0)
    fields.reject("top_logprobs", "logprobs must be true.");
  out.conversation = parse_messages(fields);
  static_cast<ToolRequest&>(out) = parse_tools(fields);
  if (out.grammar && !out.tools.empty())
    fields.reject("response_format", "the form of an answer cannot be determined together with tools.",
                  "unsupported_field");
  out.template_arguments = parse_template_arguments(fields);
  out.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  return out;
}

CompletionRequest parse_completion_request(const Json& body, const RequestDefaults& defaults) {
  const Fields fields(body);
  CompletionRequest out;
  parse_sampling_request(fields, defaults, out);
  out.max_tokens = parse_max_tokens(fields, 0).value_or(defaults.context);
  out.log_probabilities = fields.integer("logprobs", 0, most_log_probabilities).value_or(-1);
  out.echo = fields.boolean("echo").value_or(false);
  if (out.echo && out.log_probabilities >= 0)
    fields.reject("logprobs", "log probabilities of the prompt are not supported; do not combine echo and logprobs.",
                  "unsupported_field");
  out.prompts = parse_prompts(fields, "prompt", most_prompts, defaults.vocabulary);
  out.suffix = fields.string("suffix").value_or("");
  const auto is_text = [](const RequestPrompt& p) { return std::holds_alternative<std::string>(p); };
  if (!out.suffix.empty() && !std::ranges::all_of(out.prompts, is_text))
    fields.reject("suffix", "the prompt must be text, not token ids.", "unsupported_field");
  return out;
}

}  // namespace tessera::app
