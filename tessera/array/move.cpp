// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/move.h"

#include <fmt/format.h>

#include "tessera/array/elementwise.h"

namespace tessera {

namespace detail {

namespace {

/// An array's elements in its storage. Two arrays of equal views are one afterwards too.
struct ViewKey {
  std::uint64_t byte_offset;
  DType dtype;
  Shape shape;
  Strides strides;
  friend auto operator<=>(const ViewKey&, const ViewKey&) = default;
};

/// What is known of a storage that arrays to be moved lie in.
struct Block {
  std::shared_ptr<Storage> storage;
  std::uint64_t low = ~std::uint64_t{0}, high = 0;   // bytes that its arrays cover
  std::map<ViewKey, std::optional<Array>> views;     // and what each became
  std::shared_ptr<Storage> moved;                    // [low, high) on the other device
  std::map<DType, std::shared_ptr<Source>> sources;  // over `moved`
};

struct Object {
  bool begun = false;
  std::shared_ptr<void> became;
  bool changed = false;
};

}  // namespace

struct MoveState {
  std::optional<Device> target;
  Queue* queue = nullptr;
  std::map<const Storage*, Block> blocks;
  std::map<std::pair<const void*, std::type_index>, Object> objects, looked;
  std::map<Device, std::pair<std::uint64_t, std::vector<std::string>>> places, empty_places;
  std::uint64_t changes = 0, to_move = 0;

  Queue& queue_of(Device device) { return queue != nullptr ? *queue : current_queue(device); }
};

}  // namespace detail

using detail::Block;
using detail::ViewKey;

Mover::Mover(Device target, Queue* queue) : state_(std::make_unique<detail::MoveState>()) {
  device_info(target);  // throws if there is none, also where nothing is to be moved
  state_->target = target;
  state_->queue = queue;
}
Mover::Mover(std::string_view root) : state_(std::make_unique<detail::MoveState>()), names_(true), path_(root) {}
Mover::~Mover() = default;

std::optional<Device> Mover::device() const { return state_->target; }
bool Mover::moves_anything() const { return state_->to_move != 0; }
std::uint64_t Mover::changes() const { return state_->changes; }

namespace {
ViewKey key_of(const BufferView& view, const Array& a) { return {view.byte_offset, a.dtype(), a.shape(), a.strides()}; }
}  // namespace

void Mover::look_at(const Array& a) {
  constexpr std::size_t most_paths = 4;
  if (!state_->target) {
    auto& [count, paths] = (a.size() == 0 ? state_->empty_places : state_->places)[a.device()];
    if (++count <= most_paths) paths.push_back(path_);
    return;
  }
  if (a.device() == *state_->target) return;
  ++state_->to_move;
  if (a.size() == 0) return;
  const BufferView view = a.view();
  Block& block = state_->blocks[view.storage.get()];
  block.storage = view.storage;
  block.low = std::min(block.low, view.byte_offset);
  block.high = std::max(block.high, view.byte_offset + view.bytes());
  block.views.try_emplace(key_of(view, a));
}

Array Mover::moved(const Array& a) {
  const Device target = *state_->target;
  if (a.device() == target) return a;
  ++state_->changes;
  if (a.size() == 0) return Array::empty(a.shape(), a.dtype(), target);
  const BufferView view = a.view();
  const auto found = state_->blocks.find(view.storage.get());
  if (found == state_->blocks.end()) return a.to(target);  // what a type's own function made on the way
  Block& block = found->second;
  std::optional<Array>& became = block.views[key_of(view, a)];
  if (became) return *became;

  if (block.views.size() == 1 && a.bytes() < view.bytes()) {
    // Nobody shares what lies between its elements.
    const Array flat = a.as_contiguous();
    Array out = Array::empty(a.shape(), a.dtype(), target);
    state_->queue_of(target).copy(out.view(), flat.view());
    became = out;
    return out;
  }
  if (!block.moved) {
    block.low = block.low / 64 * 64;  // elements and vector loads stay aligned
    block.high = std::max(block.high, view.byte_offset + view.bytes());
    const std::uint64_t bytes = block.high - block.low;
    auto storage = Storage::allocate(target, bytes, block.storage->label());
    state_->queue_of(target).copy({storage, 0, bytes, DType::u8}, {block.storage, block.low, bytes, DType::u8});
    block.moved = std::move(storage);
  }
  if (view.byte_offset < block.low || view.byte_offset + view.bytes() > block.high) return a.to(target);
  auto& source = block.sources[a.dtype()];
  if (!source) source = detail::Source::of(block.moved, a.dtype());
  became = ArrayAccess::make(source, a.dtype(), a.shape(), a.strides(),
                             static_cast<std::int64_t>((view.byte_offset - block.low) / dtype_size(a.dtype())));
  return *became;
}

bool Mover::seen(const void* object, std::type_index type) {
  return std::exchange(state_->looked[{object, type}].begun, true);
}

std::shared_ptr<void> Mover::begin(const void* object, std::type_index type) {
  detail::Object& known = state_->objects[{object, type}];
  if (known.became) {
    if (known.changed) ++state_->changes;
    return known.became;
  }
  if (known.begun)
    fail<ArgumentError>({.asked = "to",
                         .wrong = "the structure holds a shared pointer to an object that it is part of itself",
                         .todo = "Write tessera_move for that type, and set the pointer there"});
  known.begun = true;
  return nullptr;
}

void Mover::end(const void* object, std::type_index type, std::shared_ptr<void> became) {
  detail::Object& known = state_->objects[{object, type}];
  known.changed = became.get() != object;
  known.became = std::move(became);
}

std::optional<Device> Mover::common() const {
  const auto& places = state_->places.empty() ? state_->empty_places : state_->places;
  if (places.empty()) return std::nullopt;
  if (places.size() == 1) return places.begin()->first;
  std::string text;
  for (const auto& [device, place] : places) {
    const auto& [count, paths] = place;
    for (const std::string& path : paths)
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", path, to_string(device));
    if (count > paths.size()) text += fmt::format(" (and {} more there)", count - paths.size());
  }
  fail<DeviceError>({.asked = "device_of",
                     .wrong = "the arrays are on different devices: " + text,
                     .todo = "Bring them together with to(value, device)"});
}

}  // namespace tessera
