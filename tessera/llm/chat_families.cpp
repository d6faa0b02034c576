// SPDX-License-Identifier: Apache-2.0
// The templates follow the model cards. tests/llm/chat_test.cpp compares their output with llama.cpp's templates of the
// same names.
#include "tessera/llm/chat_families.h"

namespace tessera {
namespace {

// If a family has no system role, its template inserts the system prompt before the first user message.
constexpr std::string_view chatml = R"({%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})";

constexpr std::string_view llama2 = R"({%- set ns = namespace(open=false) -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{ ' ' + m.content | trim + ' ' + eos_token }}{%- set ns.open = false -%}
{%- else -%}
{%- if not ns.open -%}{{ bos_token + '[INST] ' }}{%- set ns.open = true -%}{%- endif -%}
{%- if m.role == 'system' -%}{{ '<<SYS>>\n' + m.content | trim + '\n<</SYS>>\n\n' }}
{%- else -%}{{ m.content | trim + ' [/INST]' }}{%- endif -%}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view llama3 = R"({{- bos_token -}}
{%- for m in messages -%}
{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%})";

constexpr std::string_view gemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}{%- set ns.system = ns.system + m.content | trim + '\n\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
{%- if m.role != 'assistant' -%}{{ ns.system }}{%- set ns.system = '' -%}{%- endif -%}
{{ m.content | trim + '<end_of_turn>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%})";

constexpr std::string_view phi3 = R"({%- for m in messages -%}
{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})";

constexpr std::string_view phi4 = R"({%- for m in messages -%}
{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif -%})";

// The variants of Mistral differ only in spaces: v1 (Mistral 7B 0.1, Mixtral), v3 (7B 0.3), v3 tekken (Nemo).
constexpr std::string_view mistral_v1 = R"({{- bos_token -}}{%- set ns = namespace(open=false) -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}{{ ' ' + m.content + eos_token }}{%- set ns.open = false -%}
{%- else -%}
{%- if not ns.open -%}{{ ' [INST] ' }}{%- set ns.open = true -%}{%- endif -%}
{{ m.content + ('\n\n' if m.role == 'system' else ' [/INST]') }}
{%- endif -%}
{%- endfor -%})";
constexpr std::string_view mistral_v3 = R"({{- bos_token -}}{%- set ns = namespace(open=false) -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}{{ ' ' + m.content | trim + eos_token }}{%- set ns.open = false -%}
{%- else -%}
{%- if not ns.open -%}{{ '[INST] ' }}{%- set ns.open = true -%}{%- endif -%}
{{ m.content + ('\n\n' if m.role == 'system' else '[/INST]') }}
{%- endif -%}
{%- endfor -%})";
constexpr std::string_view mistral_v3_tekken = R"({{- bos_token -}}{%- set ns = namespace(open=false) -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}{{ m.content + eos_token }}{%- set ns.open = false -%}
{%- else -%}
{%- if not ns.open -%}{{ '[INST]' }}{%- set ns.open = true -%}{%- endif -%}
{{ m.content + ('\n\n' if m.role == 'system' else '[/INST]') }}
{%- endif -%}
{%- endfor -%})";
constexpr std::string_view mistral_v7_tekken = R"({{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'assistant' -%}{{ m.content + eos_token }}
{%- else -%}{{ '[INST]' + m.content + '[/INST]' }}{%- endif -%}
{%- endfor -%})";

constexpr std::string_view zephyr = R"({%- for m in messages -%}
{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})";

constexpr std::string_view vicuna = R"({%- for m in messages -%}
{%- if m.role == 'system' -%}{{ m.content + '\n\n' }}
{%- elif m.role == 'assistant' -%}{{ 'ASSISTANT: ' + m.content + eos_token + '\n' }}
{%- else -%}{{ 'USER: ' + m.content + '\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%})";

constexpr std::string_view deepseek3 = R"({{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{ m.content + '\n\n' }}
{%- elif m.role == 'assistant' -%}{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}
{%- else -%}{{ '<｜User｜>' + m.content }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<｜Assistant｜>' }}{%- endif -%})";

constexpr std::string_view command_r = R"({{- bos_token -}}
{%- for m in messages -%}
{{ '<|START_OF_TURN_TOKEN|>' }}
{%- if m.role == 'system' -%}{{ '<|SYSTEM_TOKEN|>' }}
{%- elif m.role == 'assistant' -%}{{ '<|CHATBOT_TOKEN|>' }}
{%- else -%}{{ '<|USER_TOKEN|>' }}{%- endif -%}
{{ m.content | trim + '<|END_OF_TURN_TOKEN|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif -%})";

}  // namespace

std::span<const ChatFamily> chat_families() {
  static const std::vector<ChatFamily> families = {
      {"chatml", chatml, {"<|im_end|>", "<|im_start|>"}},
      {"command-r", command_r, {"<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"}},
      {"deepseek3", deepseek3, {"<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"}},
      {"gemma", gemma, {"<end_of_turn>", "<start_of_turn>"}},
      {"llama2", llama2, {}},
      {"llama3", llama3, {"<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"}},
      {"mistral-v1", mistral_v1, {}},
      {"mistral", mistral_v3, {}},
      {"mistral-tekken", mistral_v3_tekken, {}},
      {"mistral-v7-tekken", mistral_v7_tekken, {}},
      {"phi3", phi3, {"<|end|>", "<|user|>", "<|assistant|>"}},
      {"phi4", phi4, {"<|im_end|>", "<|im_start|>", "<|im_sep|>"}},
      {"vicuna", vicuna, {}},
      {"zephyr", zephyr, {}}};
  return families;
}

}  // namespace tessera
