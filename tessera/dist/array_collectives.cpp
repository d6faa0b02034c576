// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/array_collectives.h"

#include "tessera/array/elementwise.h"
#include "tessera/array/history.h"
#include "tessera/device/memory/storage.h"

namespace tessera::dist {

Call call_of(Collective kind, const std::source_location& where) {
  return {.kind = kind, .file = where.file_name(), .line = where.line()};
}

void check_root(const char* operation, const World& world, int root) {
  if (root < 0 || root >= world.size())
    fail<ArgumentError>({.operation = operation,
                         .with = {{"root", std::to_string(root)}, {"ranks", std::to_string(world.size())}},
                         .wrong = "there is no such rank"});
}

void upload(const Array& to, const std::byte* from) {
  if (to.size() == 0) return;
  if (to.contiguous()) {
    current_queue(to.device()).upload(to.view_for_writing(), from);
  } else {
    Array whole = Array::empty(to.shape(), to.dtype(), to.device());
    upload(whole, from);
    Array(to).assign(whole);
  }
}

struct Pending::State {
  std::shared_ptr<const Communicator::Command> command;  ///< null: has ended
  Array result;
};

Pending WorldAccess::pending(std::shared_ptr<const Communicator::Command> command, Array result) {
  Pending out;
  out.state_ = std::make_shared<Pending::State>(std::move(command), std::move(result));
  return out;
}

bool Pending::done() const { return state_->command == nullptr || state_->command->done; }

Array Pending::get() const {
  if (state_->command != nullptr) Communicator::wait_for(*state_->command);
  return state_->result;
}

namespace {

bool on_host(const Array& x) { return x.view().storage->allocation().host != nullptr; }

/// The elements of an array in host memory during a collective: in place if the host can address them, else a copy.
class HostData {
 public:
  HostData(Round& round, DeviceGroups& groups, const Array& x, bool writes) : array_(x) {
    const std::size_t size = bytes_of(x);
    if (size != 0 && x.contiguous() && on_host(x)) {
      const void* data = nullptr;
      if (writes)
        data = access_.emplace(x.host_access()).data();
      else
        data = view_.emplace(x.host_view()).data();
      bytes = {static_cast<std::byte*>(const_cast<void*>(data)), size};
    } else {
      copy_.resize(size);
      download(round, groups, x, copy_.data());
      bytes = copy_;
    }
  }
  HostData(const HostData&) = delete;
  HostData& operator=(const HostData&) = delete;
  /// Stores the elements in the array if they are a copy.
  void store(Round& round, DeviceGroups& groups) const {
    if (!access_) upload(round, groups, array_, copy_.data());
  }
  static void upload(Round& round, DeviceGroups& groups, const Array& to, const std::byte* from) {
    if (to.size() == 0 || on_host(to)) return dist::upload(to, from);
    Queue& queue = groups.queue(to.device());
    const QueueScope scope(queue);
    dist::upload(to, from);
    // Recorded work, which is not ordered by events, may use the array afterwards.
    const Event stored = queue.record();
    round.wait([&] { return stored.done(); });
  }
  std::span<std::byte> bytes;

 private:
  const Array array_;
  std::optional<HostAccess> access_;
  std::optional<HostView> view_;
  std::vector<std::byte> copy_;
};

}  // namespace

void all_reduce(Round& round, DeviceGroups& groups, Reduce how, const Array& x) {
  if (NcclGroup* const group = groups.agree(round, x.device())) return all_reduce(round, *group, how, x);
  const HostData data(round, groups, x, true);
  dist::all_reduce(round, how, x.dtype(), data.bytes);
  data.store(round, groups);
}

void download(Round& round, DeviceGroups& groups, const Array& x, std::byte* to) {
  if (x.size() == 0 || on_host(x)) return x.download(to);
  Queue& queue = groups.queue(x.device());
  const QueueScope scope(queue);
  const Array flat = x.as_contiguous();
  flat.view().storage->before_read(queue);
  const Event computed = queue.record();
  round.wait([&] { return computed.done(); });
  flat.download(to);
}

namespace {

/// A collective, and the array that contains its result afterwards. `work` is null if there is nothing to do.
struct Operation {
  Call call;
  Callback<void(Round&)> work;
  Array result;

  Array run(World& world) const {
    if (work) WorldAccess::communicator(world)->run(call, work);
    return result;
  }
  Pending start(World& world) const {
    if (work) return WorldAccess::pending(WorldAccess::communicator(world)->start(call, work), result);
    return WorldAccess::pending(nullptr, result.copy());
  }
};

void check_plain(const char* operation, const Array& x) {
  ::tessera::detail::check_no_history(operation, x, "and collectives have no gradient", "Pass stop_gradient(x)");
}

Call call_of(Collective kind, const Array& x, Reduce how, const std::source_location& where) {
  Call call = call_of(kind, where);
  call.how = how, call.dtype = x.dtype(), call.count = static_cast<std::uint64_t>(x.size());
  return call;
}

Operation without_others(const Array& result) { return {.call = {}, .work = nullptr, .result = result}; }

Operation all_reduce_in(World& world, const Array& x, Reduce how, const std::source_location& where) {
  check_reduce("all_reduce", how, x.dtype());
  ::tessera::detail::check_write_target("all_reduce_into", x);
  ::tessera::detail::check_writable(x);
  if (world.size() == 1) return without_others(x);
  x.eval();  // on this thread
  return {.call = call_of(Collective::all_reduce, x, how, where),
          .work = [=, &groups = WorldAccess::groups(world)](Round& round) { all_reduce(round, groups, how, x); },
          .result = x};
}

Operation all_reduce_of(World& world, const Array& x, Reduce how, const std::source_location& where) {
  check_plain("all_reduce", x);
  check_reduce("all_reduce", how, x.dtype());
  return all_reduce_in(world, x.copy(), how, where);
}

/// Returns the work of a collective that reads `x` and writes `result`: `on_gpu(round, group)` if all ranks have their
/// array on a GPU of their own, else `on_host(round, data, memory)`. `data` has the elements of `x`, and `memory` has
/// `bytes` bytes, which are then stored in `result`.
template <class OnGpu, class OnHost>
Callback<void(Round&)> work_of(World& world, const Array& x, const Array& result, std::size_t bytes,
                               const OnGpu& on_gpu, const OnHost& on_host) {
  x.eval();  // on this thread
  return [=, &groups = WorldAccess::groups(world)](Round& round) {
    if (NcclGroup* const group = groups.agree(round, x.device())) return on_gpu(round, *group);
    const HostData data(round, groups, x, false);
    std::vector<std::byte> memory(bytes);
    on_host(round, std::span<const std::byte>(data.bytes), std::span(memory));
    if (bytes != 0) HostData::upload(round, groups, result, memory.data());
  };
}

/// `others` is the result on the other ranks.
Operation reduce_of(World& world, const Array& x, const Array& others, int root, Reduce how,
                    const std::source_location& where) {
  check_plain("reduce", x);
  check_reduce("reduce", how, x.dtype());
  check_root("reduce", world, root);
  if (world.size() == 1) return without_others(x);
  const bool is_root = world.rank() == root;
  const Array result = is_root ? Array::empty(x.shape(), x.dtype(), x.device()) : others;
  Call call = call_of(Collective::reduce, x, how, where);
  call.root = root;
  return {.call = call,
          .work = work_of(
              world, x, result, is_root ? bytes_of(x) : 0,
              [=](Round& round, NcclGroup& group) { dist::reduce(round, group, how, x, result, root); },
              [=, dtype = x.dtype()](Round& round, std::span<const std::byte> data, std::span<std::byte> memory) {
                dist::reduce(round, how, dtype, data, memory, root);
              }),
          .result = result};
}

Operation all_gather_of(World& world, const Array& x, const std::source_location& where) {
  check_plain("all_gather", x);
  if (world.size() == 1) return without_others(x.unsqueeze(0));
  Shape shape = x.shape();
  shape.insert(shape.begin(), world.size());
  const Array result = Array::empty(shape, x.dtype(), x.device());
  return {.call = call_of(Collective::all_gather, x, Reduce::sum, where),
          .work = work_of(
              world, x, result, bytes_of(result),
              [=](Round& round, NcclGroup& group) { dist::all_gather(round, group, x, result); },
              [](Round& round, std::span<const std::byte> data, std::span<std::byte> memory) {
                dist::all_gather(round, data, memory);
              }),
          .result = result};
}

Operation reduce_scatter_of(World& world, const Array& x, Reduce how, const std::source_location& where) {
  check_plain("reduce_scatter", x);
  check_reduce("reduce_scatter", how, x.dtype());
  if (x.rank() == 0 || x.shape(0) % world.size() != 0)
    fail<ShapeError>({.operation = "reduce_scatter",
                      .with = {{"shape", to_string(x.shape())}, {"ranks", std::to_string(world.size())}},
                      .wrong = "axis 0 cannot be divided by the number of ranks"});
  if (world.size() == 1) return without_others(x);
  Shape shape = x.shape();
  shape[0] /= world.size();
  const Array result = Array::empty(shape, x.dtype(), x.device());
  return {.call = call_of(Collective::reduce_scatter, x, how, where),
          .work = work_of(
              world, x, result, bytes_of(result),
              [=](Round& round, NcclGroup& group) { dist::reduce_scatter(round, group, how, x, result); },
              [=, dtype = x.dtype()](Round& round, std::span<const std::byte> data, std::span<std::byte> memory) {
                dist::reduce_scatter(round, how, dtype, data, memory);
              }),
          .result = result};
}

}  // namespace

void all_reduce_into(World& world, Array& x, Reduce how, std::source_location where) {
  all_reduce_in(world, x, how, where).run(world);
}
Array all_reduce(World& world, const Array& x, Reduce how, std::source_location where) {
  return all_reduce_of(world, x, how, where).run(world);
}
Array reduce(World& world, const Array& x, int root, Reduce how, std::source_location where) {
  return reduce_of(world, x, x, root, how, where).run(world);
}
Array all_gather(World& world, const Array& x, std::source_location where) {
  return all_gather_of(world, x, where).run(world);
}
Array reduce_scatter(World& world, const Array& x, Reduce how, std::source_location where) {
  return reduce_scatter_of(world, x, how, where).run(world);
}

Pending all_reduce_async(World& world, const Array& x, Reduce how, std::source_location where) {
  return all_reduce_of(world, x, how, where).start(world);
}
Pending reduce_async(World& world, const Array& x, int root, Reduce how, std::source_location where) {
  const Array copy = x.copy();
  return reduce_of(world, copy, copy, root, how, where).start(world);
}
Pending all_gather_async(World& world, const Array& x, std::source_location where) {
  return all_gather_of(world, x.copy(), where).start(world);
}
Pending reduce_scatter_async(World& world, const Array& x, Reduce how, std::source_location where) {
  return reduce_scatter_of(world, x.copy(), how, where).start(world);
}

}  // namespace tessera::dist
