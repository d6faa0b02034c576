// SPDX-License-Identifier: Apache-2.0
// A language model with fixed output: each token has a fixed successor. The weights of attention and feed-forward
// layers are zero. Each row of the output matrix is the embedding of the previous token.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"

namespace tessera::test {

/// `special` contains the control tokens; the first one ends an answer. `lines` contains sequences of tokens, each of
/// which is a control token or a word. Every token has only one successor.
inline GgufWriter scripted_model(const std::vector<std::string>& special,
                                 const std::vector<std::vector<std::string>>& lines, const std::string& chat_template) {
  std::vector<std::string> tokens = special;
  std::vector<std::int32_t> types(special.size(), 3);
  for (int b = 0; b < 256; ++b)
    tokens.push_back(byte_level_text(std::string(1, static_cast<char>(b)))), types.push_back(1);
  const auto id_of = [&](const std::string& text) {
    for (std::size_t i = 0; i < special.size(); ++i)
      if (special[i] == text) return i;
    const std::string spelt = byte_level_text(text);
    for (std::size_t i = special.size(); i < tokens.size(); ++i)
      if (tokens[i] == spelt) return i;
    tokens.push_back(spelt), types.push_back(1);
    return tokens.size() - 1;
  };
  std::vector<std::pair<std::size_t, std::size_t>> steps;
  for (const auto& line : lines)
    for (std::size_t i = 0; i + 1 < line.size(); ++i) {
      const std::size_t from = id_of(line[i]);
      steps.emplace_back(from, id_of(line[i + 1]));
    }

  constexpr std::size_t width = 64, hidden = 32;
  std::mt19937 random(1);
  std::vector<float> embedding(tokens.size() * width), output(tokens.size() * width);
  for (float& v : embedding) v = random() % 2 ? 1.0f : -1.0f;
  for (const auto& [from, to] : steps)
    for (std::size_t i = 0; i < width; ++i) output[to * width + i] += embedding[from * width + i];
  const auto zeros = [](std::size_t n) { return std::vector<float>(n); };
  const std::vector<float> ones(width, 1.0f);

  GgufWriter w;
  w.set("general.architecture", std::string("llama"));
  const auto number = [&](const char* key, std::uint32_t value) { w.set(std::string("llama.") + key, value); };
  number("context_length", 4096), number("embedding_length", width), number("block_count", 1);
  number("feed_forward_length", hidden), number("attention.head_count", 2);
  w.set("tokenizer.ggml.model", std::string("gpt2"));
  w.set("tokenizer.ggml.pre", std::string("gpt-2"));
  w.set("tokenizer.ggml.tokens", tokens);
  w.set("tokenizer.ggml.token_type", types);
  w.set("tokenizer.ggml.merges", std::vector<std::string>{});
  w.set("tokenizer.ggml.eos_token_id", std::uint32_t{0});
  w.set("tokenizer.chat_template", chat_template);
  w.add_tensor("token_embd.weight", {width, tokens.size()}, embedding);
  w.add_tensor("output.weight", {width, tokens.size()}, output);
  w.add_tensor("output_norm.weight", {width}, ones);
  for (const char* name : {"attn_norm", "ffn_norm"})
    w.add_tensor(std::string("blk.0.") + name + ".weight", {width}, ones);
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
    w.add_tensor(std::string("blk.0.") + name + ".weight", {width, width}, zeros(width * width));
  for (const char* name : {"ffn_gate", "ffn_up"})
    w.add_tensor(std::string("blk.0.") + name + ".weight", {width, hidden}, zeros(width * hidden));
  w.add_tensor("blk.0.ffn_down.weight", {hidden, width}, zeros(width * hidden));
  return w;
}

/// Returns a model that writes `first`, requests the weather in Zürich, and then reports the tool's result.
/// `prompt_end` is a text at the end of each prompt.
inline GgufWriter weather_model(const std::vector<std::string>& first = {"Let me ", "see.\n"},
                                const std::string& prompt_end = {}) {
  std::vector<std::string> asks = {"<|ask|>"};
  asks.insert(asks.end(), first.begin(), first.end());
  for (const char* token : {"<tool_call>", "\n{\"name\": \"get_weather\", ", "\"arguments\": {\"town\": ", "\"Zü",
                            "rich\"}}\n", "</tool_call>", "<|im_end|>"})
    asks.push_back(token);
  return scripted_model(
      {"<|im_end|>", "<|im_start|>", "<|ask|>", "<|tell|>", "<tool_call>", "</tool_call>", "<think>", "</think>"},
      {asks, {"<|tell|>", "It is ", "warm.", "<|im_end|>"}},
      "{% if tools %}<|im_start|>tools\n{{ tools | tojson }} as <tool_call><|im_end|>{% endif %}"
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>"
      "{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|tell|>' if messages[-1].role == 'tool' or not tools else '<|ask|>' }}" +
          prompt_end + "{% endif %}");
}

inline const char* const weather_tools =
    R"([{"name": "get_weather", "description": "The weather in a town, now.", "parameters": {"type": "object",
         "properties": {"town": {"type": "string"}}, "required": ["town"]}}])";

}  // namespace tessera::test
