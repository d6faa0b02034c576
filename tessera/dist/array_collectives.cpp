// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/array_collectives.h"

#include <mutex>

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
  std::mutex lock;
  Callback<Array()> finish;     ///< guarded by `lock`; null if there is a result
  std::optional<Array> result;  ///< guarded by `lock`
};

Pending WorldAccess::pending(std::shared_ptr<const Communicator::Command> command, Callback<Array()> finish) {
  Pending out;
  out.state_ = std::make_shared<Pending::State>();
  out.state_->command = std::move(command), out.state_->finish = std::move(finish);
  return out;
}

bool Pending::done() const { return state_->command == nullptr || state_->command->done; }

Array Pending::get() const {
  if (state_->command != nullptr) Communicator::wait_for(*state_->command);
  const std::lock_guard held(state_->lock);
  if (!state_->result) state_->result = state_->finish(), state_->finish = nullptr;
  return *state_->result;
}

namespace {

/// The elements of an array in host memory: in place if the host can address them, else a copy.
class HostData {
 public:
  explicit HostData(const Array& x) : array_(x) {
    const std::size_t size = bytes_of(x);
    if (x.size() != 0 && x.contiguous() && x.view().storage->allocation().host) {
      access_.emplace(x.host_access());
      bytes = {static_cast<std::byte*>(access_->data()), size};
    } else {
      copy_.resize(size);
      x.download(copy_.data());
      bytes = copy_;
    }
  }
  HostData(const HostData&) = delete;
  HostData& operator=(const HostData&) = delete;
  /// Ends the access to the elements. Stores them in the array if they are a copy.
  Array store() {
    if (access_)
      access_.reset();
    else
      upload(array_, copy_.data());
    return array_;
  }
  std::span<std::byte> bytes;

 private:
  const Array array_;
  std::optional<HostAccess> access_;
  std::vector<std::byte> copy_;
};

/// A collective, and the function that returns its result afterwards. `work` is null if there is nothing to do.
struct Operation {
  Call call;
  Callback<void(Round&)> work;
  Callback<Array()> finish;

  Array run(World& world) const {
    if (work) WorldAccess::communicator(world)->run(call, work);
    return finish();
  }
  Pending start(World& world) const {
    if (work) return WorldAccess::pending(WorldAccess::communicator(world)->start(call, work), finish);
    return WorldAccess::pending(nullptr, [result = finish().copy()] { return result; });
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

Operation without_others(const Array& result) {
  return {.call = {}, .work = nullptr, .finish = [result] { return result; }};
}

Operation all_reduce_in(World& world, const Array& x, Reduce how, const std::source_location& where) {
  check_reduce("all_reduce", how, x.dtype());
  if (world.size() == 1) return without_others(x);
  const auto data = std::make_shared<HostData>(x);
  const DType dtype = x.dtype();
  return {.call = call_of(Collective::all_reduce, x, how, where),
          .work = [=](Round& round) { dist::all_reduce(round, how, dtype, data->bytes); },
          .finish = [=] { return data->store(); }};
}

Operation all_reduce_of(World& world, const Array& x, Reduce how, const std::source_location& where) {
  check_plain("all_reduce", x);
  check_reduce("all_reduce", how, x.dtype());
  return all_reduce_in(world, x.copy(), how, where);
}

/// The input and the result of a collective in host memory.
struct Memory {
  Memory(const Array& x, std::size_t result_bytes) : data(bytes_of(x)), result(result_bytes) {
    x.download(data.data());
  }
  std::vector<std::byte> data, result;
};

/// Returns the function that creates an array with the bytes of `memory->result`.
Callback<Array()> result_of(const std::shared_ptr<Memory>& memory, const Shape& shape, const Array& like) {
  return [=, dtype = like.dtype(), device = like.device()] {
    const Array out = Array::empty(shape, dtype, device);
    upload(out, memory->result.data());
    return out;
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
  const auto memory = std::make_shared<Memory>(x, is_root ? bytes_of(x) : 0);
  Call call = call_of(Collective::reduce, x, how, where);
  call.root = root;
  return {.call = call,
          .work = [=, dtype = x.dtype()](
                      Round& round) { dist::reduce(round, how, dtype, memory->data, memory->result, root); },
          .finish = is_root ? result_of(memory, x.shape(), x) : without_others(others).finish};
}

Operation all_gather_of(World& world, const Array& x, const std::source_location& where) {
  check_plain("all_gather", x);
  if (world.size() == 1) return without_others(x.unsqueeze(0));
  const auto memory = std::make_shared<Memory>(x, bytes_of(x) * static_cast<std::size_t>(world.size()));
  Shape shape = x.shape();
  shape.insert(shape.begin(), world.size());
  return {.call = call_of(Collective::all_gather, x, Reduce::sum, where),
          .work = [=](Round& round) { dist::all_gather(round, memory->data, memory->result); },
          .finish = result_of(memory, shape, x)};
}

Operation reduce_scatter_of(World& world, const Array& x, Reduce how, const std::source_location& where) {
  check_plain("reduce_scatter", x);
  check_reduce("reduce_scatter", how, x.dtype());
  if (x.rank() == 0 || x.shape(0) % world.size() != 0)
    fail<ShapeError>({.operation = "reduce_scatter",
                      .with = {{"shape", to_string(x.shape())}, {"ranks", std::to_string(world.size())}},
                      .wrong = "axis 0 cannot be divided by the number of ranks"});
  if (world.size() == 1) return without_others(x);
  const auto memory = std::make_shared<Memory>(x, bytes_of(x) / static_cast<std::size_t>(world.size()));
  Shape shape = x.shape();
  shape[0] /= world.size();
  return {.call = call_of(Collective::reduce_scatter, x, how, where),
          .work = [=, dtype = x.dtype()](
                      Round& round) { dist::reduce_scatter(round, how, dtype, memory->data, memory->result); },
          .finish = result_of(memory, shape, x)};
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
  return reduce_of(world, x, world.rank() == root ? x : x.copy(), root, how, where).start(world);
}
Pending all_gather_async(World& world, const Array& x, std::source_location where) {
  return all_gather_of(world, x, where).start(world);
}
Pending reduce_scatter_async(World& world, const Array& x, Reduce how, std::source_location where) {
  return reduce_scatter_of(world, x, how, where).start(world);
}

}  // namespace tessera::dist
