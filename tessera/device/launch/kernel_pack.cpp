// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/kernel_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/packed.h"
#include "tessera/base/sha256.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"
#include "tessera/ir/digest.h"

namespace tessera {
namespace {

// The file: `pack_magic`, the number of bytes of the index, the SHA-256 of the index, the index, the images. Increment
// the number in `pack_magic` if this layout, the images of backends (backend/common/image.cpp, backend/cpu/kernel.cpp),
// or the arguments of compiled kernels (cpu::KernelCall, emit::KernelArgument) change.
constexpr std::string_view any_pack_magic = "tessera pack ", pack_magic = "tessera pack 1\n";
constexpr std::size_t pack_hash_digits = 64;
constexpr std::uint64_t pack_head_bytes = pack_magic.size() + sizeof(std::uint64_t) + pack_hash_digits;

[[noreturn]] void refuse_pack(const std::string& file, const std::string& wrong,
                              const char* remedy = "Make the pack again with `tessera pack`, or copy the whole file") {
  fail<FormatError>({.operation = "open pack", .with = {{"file", file}}, .wrong = wrong, .remedy = remedy});
}

std::string read_piece(const InputFile& input, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  input.read(offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

}  // namespace

std::string kernel_lines(Backend backend, const CompileRequest& request) {
  std::string name = request.function->name;
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) c = '_';
  return fmt::format("kernel: {}\nhash: {}\ndigest: {}\nvariant: {} {}{}\nbackend: {}\n", name,
                     ir::to_string(ir::hash_of(*request.function)), ir::digest_of(*request.function),
                     request.variant.noalias ? "noalias" : "plain", request.variant.index64 ? "i64" : "i32",
                     request.variant.aligned ? "" : " unaligned", backend_name(backend));
}

std::string KernelPack::to_bytes(const std::vector<PackTarget>& targets, const std::vector<Entry>& entries) {
  Packer index;
  index << std::string_view(TESSERA_VERSION) << std::uint64_t{targets.size()};
  for (const PackTarget& t : targets)
    index << t.name << static_cast<std::uint8_t>(t.backend) << t.compiler << t.compute_units << t.shared_bytes
          << t.traits;
  index << std::uint64_t{entries.size()};
  std::string images;
  for (const Entry& e : entries) {
    index << e.target << e.key << std::uint64_t{images.size()} << std::uint64_t{e.image.size()} << sha256(e.image);
    images += e.image;
  }
  const std::string body = index.take();
  std::string out(pack_magic);
  out += (Packer() << std::uint64_t{body.size()}).take() + sha256(body) + body + images;
  return out;
}

KernelPack::KernelPack(const std::string& file) : file_(file), input_(file) {
  const std::uint64_t size = input_.size();
  const std::string head = read_piece(input_, 0, std::min(size, pack_head_bytes));
  if (!head.starts_with(any_pack_magic))
    refuse_pack(file, "the file is not a pack", "Name a file that `tessera pack` has made");
  if (head.size() >= pack_magic.size() && !head.starts_with(pack_magic))
    refuse_pack(file, "the pack was made by a version of Tessera with another format");
  constexpr const char* truncated = "the pack is truncated";
  if (head.size() < pack_head_bytes) refuse_pack(file, truncated);
  const auto index_bytes = Unpacker(std::string_view(head).substr(pack_magic.size())).take<std::uint64_t>();
  if (index_bytes > size - pack_head_bytes) refuse_pack(file, truncated);
  const std::string index = read_piece(input_, pack_head_bytes, index_bytes);
  if (sha256(index) != std::string_view(head).substr(pack_head_bytes - pack_hash_digits))
    refuse_pack(file, "the pack is damaged");
  images_at_ = pack_head_bytes + index_bytes;
  Unpacker in(index);
  if (const std::string version(in.text()); version != TESSERA_VERSION)
    refuse_pack(file, fmt::format("the pack was made by Tessera {}, and this is {}", version, TESSERA_VERSION));
  targets_.resize(in.take<std::uint64_t>());
  for (PackTarget& t : targets_) {
    t.name = in.text(), t.backend = static_cast<Backend>(in.take<std::uint8_t>()), t.compiler = in.text();
    t.compute_units = in.take<std::uint32_t>(), t.shared_bytes = in.take<std::uint64_t>(), t.traits = in.text();
  }
  places_.resize(targets_.size());
  std::uint64_t end = images_at_;
  for (auto entries = in.take<std::uint64_t>(); entries > 0; --entries) {
    const auto target = in.take<std::uint32_t>();
    const std::string key(in.text());
    Place place;
    place.offset = in.take<std::uint64_t>(), place.bytes = in.take<std::uint64_t>(), place.hash = in.text();
    end = std::max(end, images_at_ + place.offset + place.bytes);
    places_.at(target).emplace(key, std::move(place));
  }
  in.end();
  if (end != size) refuse_pack(file, end > size ? truncated : "the pack is longer than its index");
}

const PackTarget* KernelPack::target(std::string_view name) const {
  const auto found = std::ranges::find(targets_, name, &PackTarget::name);
  return found == targets_.end() ? nullptr : &*found;
}

std::size_t KernelPack::kernels(std::string_view name) const {
  const PackTarget* const found = target(name);
  return found == nullptr ? 0 : places_[static_cast<std::size_t>(found - targets_.data())].size();
}

std::string KernelPack::target_names(std::string_view between) const {
  std::string names;
  for (const PackTarget& t : targets_) names += (names.empty() ? "" : std::string(between)) + t.name;
  return names;
}

std::optional<std::string> KernelPack::find(std::string_view name, std::string_view key) const {
  const PackTarget* const found = target(name);
  if (found == nullptr) return std::nullopt;
  const auto& places = places_[static_cast<std::size_t>(found - targets_.data())];
  const auto place = places.find(key);
  if (place == places.end()) return std::nullopt;
  return read(place->second);
}

std::string KernelPack::read(const Place& place) const {
  std::string image = read_piece(input_, images_at_ + place.offset, place.bytes);
  if (sha256(image) != place.hash) refuse_pack(file_, "the pack is damaged");
  return image;
}

void KernelPack::check_images() const {
  for (const auto& places : places_)
    for (const auto& [key, place] : places) read(place);
}

// The pack in use. Packs are never closed, because devices keep pointers to their targets.

namespace {

/// The program may change its folder later.
std::string absolute_path(const std::string& file) {
  std::error_code ignored;
  const auto path = std::filesystem::absolute(file, ignored);
  return path.empty() ? file : path.string();
}

struct InUse {
  std::mutex lock;
  std::string set;  // by set_pack
  const KernelPack* pack = nullptr;
  explicit InUse(const InUse* parents) {
    if (parents != nullptr) set = parents->set, pack = parents->pack;
  }
};
constinit os::PerProcess<InUse> in_use;

}  // namespace

const KernelPack* pack_in_use() {
  InUse& state = in_use.get();
  const std::lock_guard hold(state.lock);
  if (state.pack == nullptr)
    if (const auto& named = settings().pack) state.pack = new KernelPack(absolute_path(*named));
  return state.pack;
}

const KernelPack* usable_pack() noexcept {
  try {
    return pack_in_use();
  } catch (const std::exception&) {  // opening a device reports it
    return nullptr;
  }
}

void set_pack(const std::string& file) {
  auto pack = std::make_unique<const KernelPack>(absolute_path(file));
  std::set<Backend> backends;  // of this pack and of the one that it replaces
  for (const KernelPack* p : {pack.get(), usable_pack()})
    if (p != nullptr)
      for (const PackTarget& target : p->targets()) backends.insert(target.backend);
  for (const OpenDevice* device : open_devices())
    for (const Backend backend : backends)
      if (device->device.backend == backend && !device->forked())
        fail<ArgumentError>({.operation = "use_pack",
                             .with = {{"file", file}, {"device", to_string(device->device)}},
                             .wrong = "the device is already open",
                             .remedy = "Call use_pack before the first use of a device"});
  {
    InUse& state = in_use.get();
    const std::lock_guard hold(state.lock);
    state.set = pack->file(), state.pack = pack.release();
  }
  for (const Backend backend : backends) forget_report(backend);
}

std::string pack_file_set() {
  InUse& state = in_use.get();
  const std::lock_guard hold(state.lock);
  return state.set;
}

std::string pack_stamp() {
  const KernelPack* const pack = usable_pack();
  return pack == nullptr ? "" : os::file_stamp(pack->file());
}

}  // namespace tessera
