// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/recurrent_states.h"

#include "tessera/llm/llama.h"

namespace tessera {

namespace {

/// The shapes of the states of a layer in one slot. The second one is empty for layers with only a convolution.
std::pair<Shape, Shape> shapes_of(const LlamaConfig& c, LayerKind kind) {
  if (kind == LayerKind::convolution) return {{c.taps - 1, c.width}, {}};
  return {{c.taps - 1, c.delta.channels()}, {c.delta.heads, c.delta.key_size, c.delta.value_size}};
}

Array zeros(std::int64_t slots, Shape shape, Device device) {
  shape.insert(shape.begin(), slots);
  return Array::zeros(shape, DType::f32, device);
}

}  // namespace

RecurrentStates::RecurrentStates(const LlamaConfig& config, std::int64_t slots, std::span<const Device> devices)
    : slots_(slots) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Layer& l = layers_.emplace_back();
    const LayerKind kind = config.kind_of(i);
    if (kind == LayerKind::attention) continue;
    const auto [convolution, matrices] = shapes_of(config, kind);
    l.convolution = zeros(slots, convolution, devices[i]);
    if (!matrices.empty()) l.matrices = zeros(slots, matrices, devices[i]);
  }
}

template <class Use>
void RecurrentStates::for_each_array(const Use& use) {
  for (Layer& l : layers_)
    for (Array* const a : {&l.convolution, &l.matrices})
      if (a->size() > 0) use(*a);
}

void RecurrentStates::grow(std::int64_t slots) {
  if (slots <= slots_) return;
  RecurrentStates larger(*this);  // shares the arrays, so that nothing changes if memory runs out
  larger.for_each_array([&](Array& a) {
    Array grown = zeros(slots, Shape(a.shape().begin() + 1, a.shape().end()), a.device());
    grown.slice(0, 0, slots_).assign(a);
    grown.eval();
    a = std::move(grown);
  });
  larger.slots_ = slots;
  *this = std::move(larger);
}

void RecurrentStates::copy(std::int64_t from, std::int64_t to) {
  for_each_array([&](Array& a) {
    a.slice(0, to, to + 1).assign(a.slice(0, from, from + 1));
    a.eval();
  });
}

std::uint64_t RecurrentStates::bytes() const {
  std::uint64_t n = 0;
  for (const Layer& l : layers_)
    for (const Array* const a : {&l.convolution, &l.matrices}) n += a->bytes();
  return n;
}

std::uint64_t RecurrentStates::bytes(Device device) const {
  std::uint64_t n = 0;
  for (const Layer& l : layers_)
    for (const Array* const a : {&l.convolution, &l.matrices}) n += a->device() == device ? a->bytes() : 0;
  return n;
}

std::uint64_t RecurrentStates::slot_bytes(const LlamaConfig& config) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < config.layer_kinds.size(); ++i) {
    if (config.kind_of(i) == LayerKind::attention) continue;
    const auto [convolution, matrices] = shapes_of(config, config.kind_of(i));
    n += static_cast<std::uint64_t>(convolution[0] * convolution[1]) * sizeof(float);
    if (!matrices.empty()) n += static_cast<std::uint64_t>(matrices[0] * matrices[1] * matrices[2]) * sizeof(float);
  }
  return n;
}

}  // namespace tessera
