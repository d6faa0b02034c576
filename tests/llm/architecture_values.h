// SPDX-License-Identifier: Apache-2.0
// The contents of tests/data/architectures.json: metadata as GGUF values, and the formula of the weights.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/llm/gguf_types.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"

namespace tessera::test {

inline GgufValue value_of(const std::string& type, const nlohmann::json& value) {
  if (type == "string") return value.get<std::string>();
  if (type == "uint32") return value.get<std::uint32_t>();
  if (type == "float32") return value.get<float>();
  if (type == "bool") return value.get<bool>();
  if (type == "array int32") return GgufArray{value.get<std::vector<std::int32_t>>()};
  if (type == "array bool") return GgufArray{value.get<std::vector<bool>>()};
  throw std::logic_error("unknown type in architectures.json: " + type);
}

inline const nlohmann::json& figures() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream("tests/data/architectures.json"));
  return all;
}

/// Returns 16 bits for each of `count` elements: splitmix64 (Steele, Lea and Flood 2014), seeded with the FNV-1a hash
/// of the name.
inline std::vector<std::uint32_t> bits_of(const std::string& name, std::size_t count) {
  std::uint64_t state = 0xcbf29ce484222325;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t& v : out) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    v = static_cast<std::uint32_t>((z ^ z >> 31) >> 48);
  }
  return out;
}

inline bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

inline std::vector<float> weights_of(const std::string& name, const std::vector<std::uint64_t>& dims) {
  std::size_t count = 1;
  for (const std::uint64_t d : dims) count *= d;
  std::vector<float> out;
  for (const std::uint32_t b : bits_of(name, count)) {
    const float u = (static_cast<float>(b) - 32768) / 32768;
    const bool norm =
        ends_with(name, "norm.weight") || ends_with(name, "norm_1.weight") || ends_with(name, "norm_2.weight");
    if (norm || ends_with(name, "scale") || ends_with(name, "scale.weight"))
      out.push_back(1 + u / 4);
    else if (ends_with(name, "gate_exps.bias") || ends_with(name, "up_exps.bias"))
      out.push_back(u * 8);  // so large that some gates are clamped
    else if (ends_with(name, ".bias"))
      out.push_back(u / 4);
    else if (name == "token_embd.weight")
      out.push_back(u);
    else  // divided by about the square root of the number of columns
      out.push_back(
          std::ldexp(u, (name.find("attn_q.weight") != std::string::npos ? 1 : 0) - (std::bit_width(dims[0]) - 1) / 2));
  }
  return out;
}

/// Returns the model file of a case. The value of the key `replaced` is replaced by `instead`.
inline GgufWriter writer_of(const nlohmann::json& c, const std::string& replaced = {}, const GgufValue& instead = {}) {
  GgufWriter w;
  for (const nlohmann::json& k : c["keys"]) {
    const auto key = k[0].get<std::string>();
    w.set(key, key == replaced ? instead : value_of(k[1].get<std::string>(), k[2]));
  }
  for (const nlohmann::json& t : c["tensors"]) {
    const auto name = t[0].get<std::string>();
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    w.add_tensor(name, dims, t.size() > 2 ? t[2].get<std::vector<float>>() : weights_of(name, dims));
  }
  return w;
}

inline std::vector<std::int32_t> tokens_of(const nlohmann::json& c) {
  std::vector<std::int32_t> out;
  for (const std::uint32_t b : bits_of("tokens", c["tokens"].get<std::size_t>()))
    out.push_back(static_cast<std::int32_t>(b % figures()["vocabulary"].get<std::uint32_t>()));
  return out;
}

/// Returns the largest difference, relative to the range of `want`.
inline double apart(std::span<const float> got, const std::vector<double>& want) {
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  double worst = got.size() == want.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < got.size() && i < want.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - want[i]) / (*high - *low);
    worst = d <= worst ? worst : std::isnan(d) ? 1e9 : d;
  }
  return worst;
}

}  // namespace tessera::test
