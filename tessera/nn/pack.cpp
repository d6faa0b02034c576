// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/pack.h"

#include <map>
#include <tuple>

namespace tessera::detail {

std::optional<Array> packed_view(std::span<const Array* const> arrays) {
  if (arrays.empty()) return std::nullopt;
  std::int64_t count = 0;
  std::optional<BufferView> first;
  for (const Array* a : arrays) {
    if (!a->contiguous() || a->pending() || a->dtype() != arrays[0]->dtype()) return std::nullopt;
    const BufferView view = a->view();
    if (!first) first = view;
    if (view.storage != first->storage ||
        view.byte_offset != first->byte_offset + static_cast<std::uint64_t>(count) * dtype_size(a->dtype()))
      return std::nullopt;
    count += a->size();
  }
  return Array::wrap(first->storage, arrays[0]->dtype(), {count}, first->byte_offset);
}

Array pack_arrays(std::span<Array* const> arrays, std::optional<Array> buffer) {
  std::int64_t count = 0;
  for (const Array* a : arrays) count += a->size();
  Array all = buffer ? *buffer : Array::empty({count}, arrays[0]->dtype(), arrays[0]->device());
  std::int64_t at = 0;
  for (Array* a : arrays) {
    Array part = all.slice(0, at, at + a->size()).reshape(a->shape());
    const std::int64_t end = at + a->size();
    part.assign(a->pending() ? std::move(*a) : *a);  // pending expressions are computed directly into the buffer
    at = end;
    *a = std::move(part);
  }
  return all;
}

bool is_packing_slower(std::span<const Array* const> arrays) {
  if (arrays.empty() || device_info(arrays[0]->device()).kind != DeviceKind::cpu) return false;
  std::int64_t copied = 0;
  for (const Array* a : arrays)
    if (!a->pending()) copied += a->size() * static_cast<std::int64_t>(dtype_size(a->dtype()));
  return copied > static_cast<std::int64_t>(arrays.size()) << 16;
}

std::vector<Array> pack_parts(const Parts& parts, std::span<const std::string> patterns, bool allow_separate,
                              std::vector<Array>* kept) {
  std::map<std::tuple<std::size_t, DType, Device>, std::vector<Array*>> groups;
  for (const auto& [path, part] : parts) {
    if (!part->trained() || part->empty()) continue;
    std::size_t group = 0;
    while (group < patterns.size() && !path_matches(path, patterns[group])) ++group;
    groups[{group, part->dtype(), part->device()}].push_back(part);
  }
  std::vector<Array> rows;
  for (const auto& [key, arrays] : groups) {
    const std::vector<const Array*> read(arrays.begin(), arrays.end());
    if (allow_separate && !packed_view(read) && is_packing_slower(read)) {
      for (Array* a : arrays) *a = a->as_contiguous().eval(), rows.push_back(a->reshape({-1}));
      continue;
    }
    if (kept != nullptr) {
      const std::size_t at = rows.size();
      const std::optional<Array> packed = packed_view(read);
      if (at == kept->size())
        kept->push_back(pack_arrays(arrays));
      else if (!packed || packed->view().storage != (*kept)[at].view().storage)
        pack_arrays(arrays, (*kept)[at]);
      rows.push_back((*kept)[at]);
      continue;
    }
    if (!packed_view(read)) pack_arrays(arrays);
    rows.push_back(*packed_view(read));
  }
  return rows;
}

void check_same_views(const char* asked, const ConstParts& parts) {
  struct Known {
    const std::string* path;
    const ModelArray* part;
  };
  std::map<std::tuple<const Source*, std::int64_t, std::int64_t>, std::vector<Known>> all;
  for (const auto& [path, part] : parts) {
    if (part->empty()) continue;
    auto& places = all[{part->source().get(), part->offset(), part->size()}];
    for (const Known& other : places)
      if ((part->trained() || other.part->trained()) &&
          (part->shape() != other.part->shape() || part->strides() != other.part->strides()))
        fail<ArgumentError>(
            {.operation = asked,
             .with = {{*other.path, to_string(other.part->shape())}, {path, to_string(part->shape())}},
             .wrong = "two parameters are different views of the same memory, and packing would separate them",
             .remedy = "Store one parameter, and transpose or reshape it in the model's operator()"});
    places.push_back({&path, part});
  }
}

std::vector<Array> pack_model(const Parts& parts, std::span<const std::string> patterns) {
  check_same_views("pack", ConstParts(parts.begin(), parts.end()));
  ArrayMap<ModelArray*> known;
  Parts once;
  std::vector<std::pair<ModelArray*, ModelArray*>> again;
  // Trained parameters are packed first. Then other arrays that share memory with them are redirected to the new
  // buffer.
  for (const bool trained : {true, false})
    for (const auto& [path, part] : parts) {
      if (part->empty() || part->trained() != trained) continue;
      if (ModelArray** leader = known.find(*part)) {
        again.emplace_back(part, *leader);
      } else {
        known.add(*part, part);
        once.emplace_back(path, part);
      }
    }
  std::vector<Array> rows = pack_parts(once, patterns);
  for (const auto& [part, leader] : again) static_cast<Array&>(*part) = *leader;
  return rows;
}

}  // namespace tessera::detail
