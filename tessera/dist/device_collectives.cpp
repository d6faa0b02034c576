// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/device_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tessera/base/log.h"
#include "tessera/dist/collectives.h"

namespace tessera::dist {

NcclVersions nccl_versions() {
  NcclVersions versions;
  for (int i = 0; i < NcclLibrary::number; ++i) versions[static_cast<std::size_t>(i)] = NcclLibrary::get(i).version();
  return versions;
}

DeviceGroups::DeviceGroups(std::span<const NcclVersions> versions, std::string machine) : machine_(std::move(machine)) {
  for (std::size_t i = 0; i < reasons_.size(); ++i) {
    const NcclLibrary& ours = NcclLibrary::get(static_cast<int>(i));
    if (ours.version() == 0) reasons_[i] = ours.reason();
    for (std::size_t k = 0; k < versions.size() && reasons_[i].empty(); ++k)
      if (versions[k][i] == 0)
        reasons_[i] = fmt::format("rank {} has no such library", k);
      else if (versions[k][i] != ours.version())
        reasons_[i] = fmt::format("rank {} has version {} instead of {}", k, versions[k][i], ours.version());
  }
}

std::string DeviceGroups::library() const {
  const NcclLibrary* const used = used_;
  return used == nullptr ? "" : used->name();
}

Queue& DeviceGroups::queue(Device device) {
  std::unique_ptr<Queue>& queue = queues_[device];
  if (queue == nullptr) queue = std::make_unique<Queue>(device);
  return *queue;
}

void DeviceGroups::warn(const Round& round, int library, const std::string& why) {
  if (round.rank() == 0 && warnings_.insert(why).second)
    logging::warn(fmt::format("arrays on GPUs are sent to other ranks through host memory, without {}: {}",
                              NcclLibrary::get(library).name().substr(0, 4), why));
}

NcclGroup* DeviceGroups::agree(Round& round, std::optional<Device> device) {
  constexpr int on_several = -2, on_other = -1;
  const int ours = device ? NcclLibrary::index_for(device->backend) : on_several;
  if (std::ranges::none_of(reasons_, &std::string::empty)) {
    if (ours >= 0) warn(round, ours, reasons_[static_cast<std::size_t>(ours)]);
    return nullptr;
  }
  struct Notice {
    std::int32_t library = on_other, unused = 0;
    std::uint64_t card = 0;  ///< distinguishes the GPUs of all machines
  };
  Notice mine{.library = ours};
  if (ours >= 0) {
    const std::string& identity = device_info(*device).identity;
    mine.card = std::hash<std::string>{}(machine_ + (identity.empty() ? to_string(*device) : identity));
  }
  std::vector<Notice> all(static_cast<std::size_t>(round.size()));
  dist::all_gather(round, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));

  const int library = std::ranges::max(all, {}, &Notice::library).library;
  if (library < 0) return nullptr;
  std::vector<std::uint64_t> cards;
  for (const Notice& n : all) {
    const auto other = std::ranges::find(cards, n.card);
    std::string why;
    if (n.library == on_several)
      why = fmt::format("rank {} has arrays on several devices", cards.size());
    else if (n.library == on_other)
      why = fmt::format("the arrays of rank {} are not on a GPU of NVIDIA or AMD", cards.size());
    else if (n.library != all[0].library)
      why = fmt::format("ranks 0 and {} have GPUs of different vendors", cards.size());
    else if (other != cards.end())
      why = fmt::format("ranks {} and {} use the same GPU", other - cards.begin(), cards.size());
    else
      why = reasons_[static_cast<std::size_t>(library)];
    if (!why.empty()) return warn(round, library, why), nullptr;
    cards.push_back(n.card);
  }
  std::unique_ptr<NcclGroup>& group = groups_[cards];
  if (group == nullptr) {
    const NcclLibrary& messages = NcclLibrary::get(library);
    NcclId id{};
    if (round.rank() == 0) messages.check(messages.call.unique_id(&id), "ncclGetUniqueId", nullptr);
    dist::broadcast(round, std::as_writable_bytes(std::span(&id, 1)), 0);
    group = std::make_unique<NcclGroup>(messages, round, id, queue(*device));
    used_ = &messages;
  }
  return group.get();
}

namespace {

/// Arrays up to this size are sent whole to all ranks: one round instead of two.
constexpr std::size_t sent_whole = 65536;

/// Combines elements like tree_reduce. The operations are deferred, so that one kernel computes all of them. (If the
/// result is assigned to one of the parts, it is copied afterwards.)
Array combine(Reduce how, std::vector<Array> parts) {
  const DType dtype = parts[0].dtype();
  if (dtype == DType::f16 || dtype == DType::bf16)
    for (Array& part : parts) part = part.astype(DType::f32);
  const auto of_two = [&](const Array& a, const Array& b) {
    if (how == Reduce::sum || how == Reduce::mean) return a + b;
    if (dtype == DType::boolean) return how == Reduce::min ? a & b : a | b;
    const Array first = how == Reduce::min ? a < b : a > b;
    return where(is_float(dtype) ? first | (a != a) : first, a, b);
  };
  for (std::size_t step = 1; step < parts.size(); step *= 2)
    for (std::size_t k = 0; k + step < parts.size(); k += 2 * step) parts[k] = of_two(parts[k], parts[k + step]);
  const Array result = how == Reduce::mean ? parts[0] / static_cast<float>(parts.size()) : parts[0];
  return result.astype(dtype);
}

/// One collective on arrays of one dimension.
class DeviceRound {
 public:
  DeviceRound(Round& round, NcclGroup& group) : round_(round), group_(group), scope_(group.queue()) {}

  /// Elements [begin, end) that belong to rank k.
  Array slice(const Array& x, int k) const {
    const auto begin = [&](int i) { return x.size() * i / round_.size(); };
    return x.slice(0, begin(k), begin(k + 1));
  }
  void send(int to, const Array& x) {
    if (x.size() != 0) out_.push_back({to, x.view()});
  }
  void receive(int from, const Array& x) {
    if (x.size() != 0) in_.push_back({from, x.view_for_writing()});
  }
  void exchange() {
    if (!out_.empty() || !in_.empty()) group_.exchange(round_, out_, in_);
    out_.clear(), in_.clear();
  }
  template <class F>
  void for_others(F&& f) const {
    for (int k = 1; k < round_.size(); ++k) f((round_.rank() + k) % round_.size());
  }
  /// Sends part_for(k) to rank k, receives this rank's part from all, and returns the combination.
  template <class PartFor>
  Array exchange_and_combine(Reduce how, const PartFor& part_for) {
    const Array mine = part_for(round_.rank());
    const Array received = Array::empty({round_.size(), mine.size()}, mine.dtype(), mine.device());
    std::vector<Array> parts;
    for (int k = 0; k < round_.size(); ++k) parts.push_back(k == round_.rank() ? mine : received.select(0, k));
    for_others([&](int k) { send(k, part_for(k)), receive(k, parts[static_cast<std::size_t>(k)]); });
    exchange();
    return combine(how, std::move(parts));
  }

 private:
  Round& round_;
  NcclGroup& group_;
  const QueueScope scope_;
  std::vector<NcclGroup::Message> out_, in_;
};

Array flat(const Array& x) { return x.as_contiguous().reshape({x.size()}); }

/// Calls f(device_round), and waits until the result is complete: recorded work, which is not ordered by events, may
/// use it afterwards.
template <class F>
void on_gpus(Round& round, NcclGroup& group, const F& f) {
  try {
    DeviceRound on(round, group);
    f(on);
    group.finish(round);
  } catch (...) {  // messages that other ranks do not send or receive any more would occupy the GPU
    group.abort();
    throw;
  }
}

}  // namespace

void all_reduce(Round& round, NcclGroup& group, Reduce how, const Array& x) {
  on_gpus(round, group, [&](DeviceRound& on) {
    const Array data = flat(x);
    Array result = data;
    if (static_cast<std::size_t>(x.size()) * dtype_size(x.dtype()) <= sent_whole) {
      result.assign(on.exchange_and_combine(how, [&](int) { return data; }));
    } else {
      Array mine = on.slice(data, round.rank());
      mine.assign(on.exchange_and_combine(how, [&](int k) { return on.slice(data, k); }));
      on.for_others([&](int k) { on.send(k, mine), on.receive(k, on.slice(data, k)); });
      on.exchange();
    }
    if (!x.contiguous()) Array(x).assign(result.reshape(x.shape()));
  });
}

void reduce(Round& round, NcclGroup& group, Reduce how, const Array& x, const Array& result, int root) {
  on_gpus(round, group, [&](DeviceRound& on) {
    const Array data = flat(x);
    const Array mine = on.exchange_and_combine(how, [&](int k) { return on.slice(data, k); });
    if (round.rank() == root) {
      on.slice(flat(result), root).assign(mine);
      on.for_others([&](int k) { on.receive(k, on.slice(flat(result), k)); });
    } else {
      on.send(root, mine);
    }
    on.exchange();
  });
}

void reduce_scatter(Round& round, NcclGroup& group, Reduce how, const Array& x, const Array& result) {
  on_gpus(round, group, [&](DeviceRound& on) {
    const Array data = flat(x);
    flat(result).assign(on.exchange_and_combine(how, [&](int k) { return on.slice(data, k); }));
  });
}

void all_gather(Round& round, NcclGroup& group, const Array& x, const Array& result) {
  on_gpus(round, group, [&](DeviceRound& on) {
    const Array data = flat(x);
    const auto row = [&](int k) { return flat(result.select(0, k)); };
    row(round.rank()).assign(data);
    on.for_others([&](int k) { on.send(k, data), on.receive(k, row(k)); });
    on.exchange();
  });
}

}  // namespace tessera::dist
