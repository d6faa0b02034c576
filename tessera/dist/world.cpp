// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <thread>

#include "tessera/base/os/process_tree.h"
#include "tessera/base/os/processor.h"
#include "tessera/base/os/system.h"
#include "tessera/base/sha256.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/dist/array_collectives.h"
#include "tessera/dist/launcher.h"
#include "tessera/dist/mpi_transport.h"
#include "tessera/dist/thread_transport.h"
#include "tessera/dist/tile_exchange.h"
#include "tessera/task/trace_hooks.h"

namespace tessera::dist {

namespace {

/// What each rank sends to all others at the start.
struct Introduction {
  char version[32] = {};
  char host[128] = {};
  char boot[40] = {};  ///< distinguishes machines with the same name
  std::int32_t process = 0;
  std::uint64_t start = 0;  ///< start time of the process
  char affinity[68] = {};   ///< hash of the affinity mask
  NcclVersions nccl = {};
};

void store(std::span<char> to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), to.size() - 1));
}

std::span<std::byte> writable_bytes(auto& values) { return std::as_writable_bytes(std::span(values)); }

/// Describes the first line in which two texts differ.
std::string first_difference(const std::string& theirs, const std::string& ours) {
  const auto [a, b] = std::ranges::mismatch(theirs, ours);
  const auto line_at = [](const std::string& text, std::string::const_iterator at) {
    const auto begin = std::find(std::make_reverse_iterator(at), text.rend(), '\n').base();
    const std::string line(begin, std::find(at, text.end(), '\n'));
    return line.empty() ? std::string("nothing") : line;
  };
  return fmt::format("{} instead of {}", line_at(ours, b), line_at(theirs, a));
}

}  // namespace

struct World::State {
  ~State() {
    if (tiles) tiles->detach();
    communicator.reset();
    if (tiles) tiles->end();
  }
  std::unique_ptr<DeviceGroups> groups;                       ///< with several ranks
  std::shared_ptr<TileExchange> tiles;                        ///< with several ranks
  std::shared_ptr<const tessera::detail::RankPlaces> places;  ///< all devices, when they have been exchanged
  std::unique_ptr<Communicator> communicator;                 ///< null: one rank
  std::vector<RankInfo> ranks;
  std::vector<int> local_ranks, ranks_of_process;  ///< of this machine; of this process
  int rank = 0, size = 1, local_rank = 0, local_size = 0;
  std::string name;
  /// A sum that start_sum has started.
  struct Started {
    Array array, sum;
    std::shared_ptr<const Communicator::Command> command;
  };
  std::vector<Started> started;

  /// Runs a collective, unless there is only one rank.
  void run(const Call& call, const Callback<void(Round&)>& work) {
    if (communicator) communicator->run(call, work);
  }

  void join(Callback<std::unique_ptr<Transport>()> open, bool divides_cores) {
    communicator = std::make_unique<Communicator>(std::move(open));
    rank = communicator->rank(), size = communicator->size(), name = communicator->name();
    introduce(divides_cores);
    if (size == 1) return;
    tiles = std::make_shared<TileExchange>(*communicator);
    communicator->set_background(*tiles);
  }
  const tessera::detail::RankPlaces& all_places();
  void introduce(bool divides_cores);
};

Communicator* WorldAccess::communicator(World& world) { return world.state_->communicator.get(); }
DeviceGroups& WorldAccess::groups(World& world) { return *world.state_->groups; }
TileExchange& WorldAccess::tiles(World& world) { return *world.state_->tiles; }
const std::vector<int>& WorldAccess::local_ranks(const World& world) { return world.state_->local_ranks; }
const std::vector<int>& WorldAccess::ranks_of_process(const World& world) { return world.state_->ranks_of_process; }

void World::State::introduce(bool divides_cores) {
  Introduction mine;
  store(mine.version, TESSERA_VERSION);
  store(mine.host, os::host_name());
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  store(mine.boot, boot);
  mine.process = os::process_id();
  mine.start = os::start_of(mine.process);
  store(mine.affinity, sha256(os::affinity_text()));
  if (size > 1) mine.nccl = nccl_versions();
  std::vector<Introduction> all(static_cast<std::size_t>(size), mine);
  run({.kind = Collective::all_gather, .count = sizeof mine},
      [&](Round& round) { all_gather(round, std::as_bytes(std::span(&mine, 1)), writable_bytes(all)); });
  const std::string host = mine.host;
  unsigned same_cores = 0;
  for (int k = 0; k < size; ++k) {
    const Introduction& other = all[static_cast<std::size_t>(k)];
    if (std::strcmp(other.version, mine.version) != 0)
      fail<ConnectionError>(
          {.operation = "World",
           .with = {{"rank " + std::to_string(rank), mine.version}, {"rank " + std::to_string(k), other.version}},
           .wrong = "the ranks run different versions of Tessera",
           .remedy = "Install the same version on all machines"});
    ranks.push_back({.rank = k, .host = other.host, .process = other.process});
    if (ranks.back().host != host || std::strcmp(other.boot, mine.boot) != 0) continue;
    if (k == rank) local_rank = local_size;
    local_ranks.push_back(k);
    if (other.process == mine.process && other.start == mine.start) ranks_of_process.push_back(k);
    ++local_size;
    if (std::strcmp(other.affinity, mine.affinity) == 0) ++same_cores;
    if (other.process != mine.process) communicator->watch(k, other.process, other.start);
  }
  if (size > 1) {
    std::vector<NcclVersions> versions;
    for (const Introduction& one : all) versions.push_back(one.nccl);
    groups = std::make_unique<DeviceGroups>(versions, host + mine.boot);
  }
  // A wait that keeps its core is faster, but other ranks may need the core.
  if (communicator && same_cores <= os::usable_cores()) communicator->keep_cores();
  if (divides_cores && size > 1) tessera::detail::tracing::rank_of_process = rank;
  if (divides_cores) os::set_machine_share({static_cast<unsigned>(local_rank), same_cores});
}

World::World() : state_(std::make_unique<State>()) {
  if (const std::optional<Launch> launch = find_launch())
    state_->join([launch] { return open_mpi(*launch); }, true);
  else
    state_->introduce(false);
}

World::World(MpiCommunicator communicator) : state_(std::make_unique<State>()) {
  state_->join([communicator] { return adopt_mpi(communicator.handle); }, true);
}

World::World(Callback<std::unique_ptr<Transport>()> open) : state_(std::make_unique<State>()) {
  state_->join(std::move(open), false);
}

World::~World() = default;

int World::rank() const { return state_->rank; }
int World::size() const { return state_->size; }
int World::local_rank() const { return state_->local_rank; }
int World::local_size() const { return state_->local_size; }
const std::vector<RankInfo>& World::ranks() const { return state_->ranks; }
const std::string& World::name() const { return state_->name; }
std::string World::gpu_library() const { return state_->groups ? state_->groups->library() : ""; }
std::uint64_t World::sent_bytes() const { return state_->communicator ? state_->communicator->sent_bytes() : 0; }
std::uint64_t World::sent_messages() const { return state_->communicator ? state_->communicator->sent_messages() : 0; }

std::uint64_t World::sent_tile_bytes() const { return state_->tiles ? state_->tiles->sent_bytes() : 0; }

/// The usable devices of all ranks.
const tessera::detail::RankPlaces& World::State::all_places() {
  if (places) return *places;
  constexpr std::size_t most = 64;  // devices of a rank
  std::array<Device, most> mine{};
  std::uint64_t count = 0;
  for (const Backend backend : all_backends)
    for (const DeviceInfo& info : discover(backend).devices)
      if (usable(info) && count < most) mine[count++] = info.device;
  std::vector<std::array<Device, most>> all(static_cast<std::size_t>(size));
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(size));
  run({.kind = Collective::all_gather, .count = sizeof mine}, [&](Round& round) {
    all_gather(round, std::as_bytes(std::span(&count, 1)), writable_bytes(counts));
    all_gather(round, std::as_bytes(std::span(&mine, 1)), writable_bytes(all));
  });
  auto made = std::make_shared<tessera::detail::RankPlaces>();
  made->messages = tiles;
  for (std::size_t r = 0; r < all.size(); ++r) {
    made->devices.emplace_back(all[r].begin(), all[r].begin() + static_cast<std::ptrdiff_t>(counts[r]));
    std::ranges::sort(made->devices.back());
  }
  places = std::move(made);
  return *places;
}

Scope World::all(const BackendScope& backend) {
  if (size() == 1) return is_built_in(backend.backend) ? backend() : backend(tessera::all);
  tessera::detail::RankPlaces some{state_->tiles, std::vector<std::vector<Device>>(static_cast<std::size_t>(size()))};
  std::string existing;
  for (std::size_t r = 0; r < some.devices.size(); ++r) {
    if (is_built_in(backend.backend)) {
      some.devices[r] = {Device{backend.backend}};
      continue;
    }
    std::ranges::copy_if(state_->all_places().devices[r], std::back_inserter(some.devices[r]),
                         [&](Device d) { return d.backend == backend.backend; });
    for (const Device d : state_->all_places().devices[r])
      existing += fmt::format("{}{} of rank {}", existing.empty() ? "" : ", ", to_string(d), r);
  }
  if (some.list().empty())
    fail<DeviceError>({.operation = fmt::format("World::all({})", backend_name(backend.backend)),
                       .wrong = "no rank has a usable device of this backend",
                       .remedy = "Devices that exist: " + existing});
  return Scope(std::make_shared<const tessera::detail::RankPlaces>(std::move(some)));
}

Scope World::on(int rank) {
  if (rank < 0 || rank >= size())
    fail<ArgumentError>({.operation = "World::on",
                         .with = {{"rank", std::to_string(rank)}, {"ranks", std::to_string(size())}},
                         .wrong = "there is no such rank"});
  if (size() == 1) {
    std::vector<Device> devices;
    for (const Backend backend : all_backends)
      for (const DeviceInfo& info : discover(backend).devices)
        if (usable(info)) devices.push_back(info.device);
    return Scope(std::move(devices));
  }
  tessera::detail::RankPlaces some{state_->tiles, std::vector<std::vector<Device>>(static_cast<std::size_t>(size()))};
  some.devices[static_cast<std::size_t>(rank)] = state_->all_places().devices[static_cast<std::size_t>(rank)];
  return Scope(std::make_shared<const tessera::detail::RankPlaces>(std::move(some)));
}

namespace {

/// Selects devices of a rank.
template <class F>
Scope select(const Scope& of_rank, int rank, const std::string& what, F&& wanted) {
  const auto keep = [&](const std::vector<Device>& all) {
    std::vector<Device> some;
    std::ranges::copy_if(all, std::back_inserter(some), wanted);
    return some;
  };
  Scope selected = of_rank;
  bool found = false;
  if (of_rank.ranks()) {
    tessera::detail::RankPlaces some = *of_rank.ranks();
    for (std::vector<Device>& devices : some.devices) devices = keep(devices);
    found = !some.list().empty();
    selected = Scope(std::make_shared<const tessera::detail::RankPlaces>(std::move(some)));
  } else if (std::vector<Device> some = keep(of_rank.devices()); !some.empty()) {
    selected = Scope(std::move(some)), found = true;
  }
  if (!found)
    fail<DeviceError>({.operation = "World::on",
                       .with = {{"rank", std::to_string(rank)}, {"device", what}},
                       .wrong = "the rank has no such usable device",
                       .remedy = "Devices that exist: " + to_string(of_rank)});
  return selected;
}

}  // namespace

Scope World::on(int rank, const BackendScope& backend) {
  return select(on(rank), rank, std::string(backend_name(backend.backend)),
                [&](Device d) { return d.backend == backend.backend; });
}
Scope World::on(int rank, const BackendScope& backend, int index) {
  const Device wanted{backend.backend, index};
  return select(on(rank), rank, to_string(wanted), [&](Device d) { return d == wanted; });
}

void World::barrier(std::source_location where) {
  state_->run(call_of(Collective::barrier, where), [](Round& round) { dist::barrier(round); });
}

namespace {

Call step_call(std::uint64_t step, DType dtype, std::uint64_t count) {
  return {.kind = Collective::training_step, .dtype = dtype, .count = count, .step = step};
}

}  // namespace

void World::start_sum(std::uint64_t step, const Array& array) {
  if (size() == 1) return;
  const Array sum = array.copy().eval();  // on this thread
  state_->started.push_back(
      {array, sum,
       state_->communicator->start(
           step_call(step, array.dtype(), static_cast<std::uint64_t>(array.size())),
           [sum, &groups = *state_->groups](Round& round) { all_reduce(round, groups, Reduce::sum, sum); })});
}

void World::sum_step(std::uint64_t step, std::span<const Array> rows, StepFlags& flags) {
  if (size() == 1) return;
  // In host memory, arrays of one dtype are exchanged together. The flags are numbers: how many ranks want to stop, and
  // whether the first one wants to report.
  struct Group {
    std::vector<const Array*> arrays;
    std::vector<std::byte> data;
  };
  std::map<DType, Group> groups;
  Array sent_flags = Array::from(std::vector<float>{flags.stop ? 1.f : 0.f, flags.report && first() ? 1.f : 0.f}, {},
                                 Device{Backend::cpu});
  std::optional<Device> device;  // of all rows
  std::uint64_t count = 2;
  for (const Array& row : rows) {
    count += static_cast<std::uint64_t>(row.size());
    row.eval();  // on this thread
  }
  if (!rows.empty() && std::ranges::all_of(rows, [&](const Array& r) { return r.device() == rows[0].device(); }))
    device = rows[0].device();
  const std::vector<State::Started> started = std::exchange(state_->started, {});
  state_->run(step_call(step, DType::f32, count), [&](Round& round) {
    NcclGroup* const gpus = state_->groups->agree(round, device);
    for (const Array& row : rows)
      if (gpus != nullptr)
        dist::all_reduce(round, *gpus, Reduce::sum, row);
      else
        groups[row.dtype()].arrays.push_back(&row);
    groups[DType::f32].arrays.push_back(&sent_flags);
    for (auto& [dtype, group] : groups) {
      std::uint64_t bytes = 0;
      for (const Array* a : group.arrays) bytes += bytes_of(*a);
      group.data.resize(bytes);
      bytes = 0;
      for (const Array* a : group.arrays)
        download(round, *state_->groups, *a, group.data.data() + bytes), bytes += bytes_of(*a);
      dist::all_reduce(round, Reduce::sum, dtype, group.data);
    }
  });
  for (const auto& [array, sum, command] : started) {
    Communicator::wait_for(*command);  // it has ended, because it was started earlier
    Array(array).assign(sum);
  }
  for (auto& [dtype, group] : groups) {
    const std::byte* at = group.data.data();
    for (const Array* a : group.arrays) upload(*a, at), at += bytes_of(*a);
  }
  const std::vector<float> received = sent_flags.to_vector<float>();
  flags.stop = received[0] > 0, flags.report = received[1] > 0;
}

void World::sum(std::span<const Array> arrays) {
  for (const Array& a : arrays) {
    Array target = a;
    all_reduce_into(*this, target);
  }
}

void World::broadcast(std::span<const Array> arrays, const std::string& what) {
  std::string layout = what + "\n";
  for (const Array& a : arrays) layout += fmt::format("{} {}\n", to_string(a.shape()), dtype_name(a.dtype()));
  detail::broadcast_arrays(*this, arrays, layout, 0, {});
}

namespace {

std::string broadcast_text(World& world, const std::string& text, int root, const std::source_location& where) {
  if (world.size() == 1) return text;
  std::uint64_t length = text.size();
  std::string out = text;
  Call call = call_of(Collective::broadcast, where);
  call.root = root;
  WorldAccess::communicator(world)->run(call, [&](Round& round) {
    dist::broadcast(round, std::as_writable_bytes(std::span(&length, 1)), root);
    out.resize(length);
    dist::broadcast(round, writable_bytes(out), root);
  });
  return out;
}

std::vector<std::uint64_t> gather_numbers(World& world, std::uint64_t number, const std::source_location& where) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()), number);
  WorldAccess::communicator(world)->run(call_of(Collective::agree, where), [&](Round& round) {
    all_gather(round, std::as_bytes(std::span(&number, 1)), writable_bytes(all));
  });
  return all;
}

}  // namespace

std::string World::broadcast(const std::string& text, int root) { return broadcast_text(*this, text, root, {}); }
std::vector<std::uint64_t> World::gather(std::uint64_t number) { return gather_numbers(*this, number, {}); }

namespace detail {

void broadcast_arrays(World& world, std::span<const Array> arrays, const std::string& layout, int root,
                      std::source_location where) {
  check_root("broadcast", world, root);
  if (world.size() == 1) return;
  // The arrays are compared before they are copied.
  const std::string theirs = broadcast_text(world, layout, root, where);
  const std::vector<std::uint64_t> equal = gather_numbers(world, theirs == layout ? 1 : 0, where);
  if (const auto other = std::ranges::find(equal, 0u); other != equal.end()) {
    const auto differs = static_cast<int>(other - equal.begin());
    fail<MismatchError>({.operation = "broadcast",
                         .wrong = fmt::format("the arrays of rank {} are not those of rank {}: {}", differs, root,
                                              world.broadcast(first_difference(theirs, layout), differs)),
                         .remedy = "All ranks must create the same structure before it is copied"});
  }
  std::uint64_t bytes = 0;
  for (const Array& a : arrays) bytes += bytes_of(a);
  std::vector<std::byte> data(bytes);
  bytes = 0;
  for (const Array& a : arrays) {
    if (world.rank() == root) a.download(data.data() + bytes);
    bytes += bytes_of(a);
  }
  Call call = call_of(Collective::broadcast, where);
  call.root = root, call.count = bytes;
  WorldAccess::communicator(world)->run(call, [&](Round& round) { dist::broadcast(round, data, root); });
  if (world.rank() == root) return;
  bytes = 0;
  for (const Array& a : arrays) upload(a, data.data() + bytes), bytes += bytes_of(a);
}

}  // namespace detail

void threads(int n, const Callback<void(World&)>& f) {
  if (n < 1)
    fail<ArgumentError>(
        {.operation = "threads", .with = {{"n", std::to_string(n)}}, .wrong = "at least one rank is needed"});
  std::vector<std::unique_ptr<Transport>> transports = thread_transports(n);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(n));
  std::vector<std::thread> running;
  for (std::size_t k = 0; k < transports.size(); ++k)
    running.emplace_back([&, k] {
      try {
        World world([&] { return std::move(transports[k]); });
        f(world);
      } catch (...) {
        errors[k] = std::current_exception();
      }
    });
  for (std::thread& t : running) t.join();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

}  // namespace tessera::dist
