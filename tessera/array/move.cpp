// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/move.h"

#include <algorithm>

#include <fmt/format.h>

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"

namespace tessera {

namespace detail {

namespace {

/// Identifies a view of a storage. Arrays with equal views share one moved array.
struct ViewKey {
  std::uint64_t byte_offset;
  DType dtype;
  Shape shape;
  Strides strides;
  friend auto operator<=>(const ViewKey&, const ViewKey&) = default;
};

/// A storage that is referenced by arrays to be moved.
struct Block {
  std::shared_ptr<Storage> storage;
  std::uint64_t low = ~std::uint64_t{0}, high = 0;   // the range of bytes that its arrays cover
  std::map<ViewKey, std::optional<Array>> views;     // each view, and the moved array once it exists
  std::shared_ptr<Storage> moved;                    // [low, high) on the target device
  std::map<DType, std::shared_ptr<Source>> sources;  // sources over `moved`
};

}  // namespace

struct MoveState {
  std::optional<Device> target;
  Queue* queue = nullptr;
  std::map<const Storage*, Block> blocks;
  std::map<Device, std::pair<std::uint64_t, std::vector<std::string>>> places, empty_places;
  std::uint64_t to_move = 0;

  Queue& queue_of(Device device) { return queue != nullptr ? *queue : current_queue(device); }
};

}  // namespace detail

using detail::Block;
using detail::ViewKey;

Mover::Mover(Device target, Queue* queue) : state_(std::make_unique<detail::MoveState>()) {
  device_info(target);  // Throws if the device does not exist, even if there is nothing to move.
  state_->target = target;
  state_->queue = queue;
}
Mover::Mover() : state_(std::make_unique<detail::MoveState>()) {}
Mover::~Mover() = default;

std::optional<Device> Mover::device() const { return state_->target; }
bool Mover::moves_anything() const { return state_->to_move != 0; }

namespace {
ViewKey key_of(const BufferView& view, const Array& a) { return {view.byte_offset, a.dtype(), a.shape(), a.strides()}; }
}  // namespace

void Mover::look_at(const Array& a, const Path& at) {
  constexpr std::size_t most_paths = 4;
  if (!state_->target) {
    auto& [count, paths] = (a.size() == 0 ? state_->empty_places : state_->places)[a.device()];
    if (++count <= most_paths) paths.push_back(at.text());
    return;
  }
  if (a.device() == *state_->target) return;
  ++state_->to_move;
  if (a.size() == 0) return;
  const BufferView view = detail::without_history(a).view();
  Block& block = state_->blocks[view.storage.get()];
  block.storage = view.storage;
  block.low = std::min(block.low, view.byte_offset);
  block.high = std::max(block.high, view.byte_offset + view.bytes());
  block.views.try_emplace(key_of(view, a));
}

Mapped<Array> Mover::moved(const Array& a, const Path& at) {
  const Device target = *state_->target;
  if (a.device() == target) return {a, false};
  detail::RuledOperation operation("to", a);
  return {operation.finish(
      copied(detail::without_history(a), at),
      [&] {
        return Attributes{{"device", to_string(target)}};
      },
      [] {
        return Rule{.backward = [](Backward& b) { b.add(0, [&] { return b.adjoint().to(b.device(0)); }); },
                    .moves = true};
      })};
}

/// The result has no history. The caller attaches the history of each array that it replaces.
Array Mover::copied(const Array& a, const Path& at) {
  const Device target = *state_->target;
  if (a.size() == 0) return Array::empty(a.shape(), a.dtype(), target);
  const BufferView view = a.view();
  const auto found = state_->blocks.find(view.storage.get());
  // The array was created by a type's own tessera_move during this move.
  if (found == state_->blocks.end()) return a.to(target);
  Block& block = found->second;
  std::optional<Array>& became = block.views[key_of(view, a)];
  if (became) return *became;
  // Memory without a label is labelled with the path of the first part that uses it. Errors show the label.
  const auto label = [&] { return block.storage->label().empty() ? at.text() : block.storage->label(); };

  if (block.views.size() == 1 && a.bytes() < view.bytes()) {
    // This is the only view of the storage, so the gaps between its elements need not be copied.
    const Array flat = a.as_contiguous();
    const Array out = Array::wrap(Storage::allocate(target, a.bytes(), label()), a.dtype(), a.shape());
    state_->queue_of(target).copy(out.view(), flat.view());
    became = out;
    return out;
  }
  if (!block.moved) {
    block.low = block.low / 64 * 64;  // Keeps elements aligned for vector loads.
    block.high = std::max(block.high, view.byte_offset + view.bytes());
    const std::uint64_t bytes = block.high - block.low;
    auto storage = Storage::allocate(target, bytes, label());
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
  fail<DeviceError>({.operation = "device_of",
                     .wrong = "the arrays are on different devices: " + text,
                     .remedy = "Move them to one device with to(value, device)"});
}

}  // namespace tessera
