// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/code_target.h"

#include <algorithm>
#include <filesystem>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/os/processor.h"
#include "tessera/base/packed.h"
#include "tessera/base/sha256.h"
#include "tessera/device/discovery/store.h"
#include "tessera/device/settings.h"

namespace tessera::cpu {

namespace {

/// Returns the file that the loader tries first; empty if none of the candidates exists.
std::string first_file() {
  const auto names = module_candidates();
  const auto exists = [](const std::string& name) {
    std::error_code missing;
    return std::filesystem::is_regular_file(name, missing);
  };
  const auto found = std::ranges::find_if(names, exists);
  return found == names.end() ? "" : *found;
}

/// The name of a record, and a hash of everything that it depends on.
struct Key {
  std::string name, hash;
};
Key key_of(const std::string& asked, const std::string& file) {
  return {"processor-" + sha256(asked + "\n" + file).substr(0, 16) + ".bin",
          sha256("format 1\ninterface " + std::to_string(interface_version) + "\ntarget " + asked + "\nmodule " +
                 os::file_stamp(file) + "\n" + os::processor_features())};
}

// A record consists of the SHA-256 hash of its body and the body.
constexpr std::size_t hash_digits = 64;

std::string write_record(const std::string& key, const CodeTarget& target) {
  const TargetTraits& t = *target.traits;
  const std::string body = (Packer() << key << target.version << target.file << target.build << t.cpu << t.features
                                     << t.feature_bits << t.width << t.f16c << t.fma << t.vnni << t.avx_vnni)
                               .take();
  return sha256(body) + body;
}

/// Throws FormatError if the record is damaged. Returns null if it was written for another key.
std::shared_ptr<CodeTarget> read_record(std::string_view bytes, const std::string& key) {
  if (bytes.size() < hash_digits || sha256(bytes.substr(hash_digits)) != bytes.substr(0, hash_digits))
    fail<FormatError>({.operation = "read processor", .wrong = "the hash does not match"});
  Unpacker in(bytes.substr(hash_digits));
  if (in.text() != key) return nullptr;
  auto out = std::make_shared<CodeTarget>();
  out->version = in.text(), out->file = in.text(), out->build = in.text(), out->opened = true;
  TargetTraits& t = out->traits.emplace();
  t.cpu = in.text(), t.features = in.text(), t.feature_bits = in.text();
  t.width = in.take<unsigned>(), t.f16c = in.take<bool>(), t.fma = in.take<bool>();
  t.vnni = in.take<bool>(), t.avx_vnni = in.take<bool>();
  in.end();
  return out;
}

std::shared_ptr<CodeTarget> load_record(const Key& key) {
  const os::PrivateStore store = private_store();
  const auto bytes = store.read(key.name);
  if (!bytes) return nullptr;
  try {
    return read_record(*bytes, key.hash);
  } catch (const FormatError& e) {
    logging::info((store.folder() / key.name).string() + " is damaged and will be replaced: " + e.what());
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<const CodeTarget> find_code_target(const std::string& asked) {
  // Without cached kernels, the module is opened in any case.
  const std::string file = settings().kernel_cache ? first_file() : "";
  const Key key = file.empty() ? Key{} : key_of(asked, file);
  if (const auto known = file.empty() ? nullptr : load_record(key)) {
    known->asked = asked;
    return known;
  }
  const auto out = std::make_shared<CodeTarget>();
  out->asked = asked;
  const Module module = open_module(asked);
  out->file = module.file, out->build = module.build, out->reason = module.reason, out->opened = module.opened;
  if (!module.generator) return out;
  out->generator = module.generator;
  out->traits = module.generator->target(), out->version = module.generator->version();
  if (!file.empty() && file == module.file)
    if (const auto why = private_store().write(key.name, write_record(key.hash, *out)))
      logging::info("the processor's features cannot be cached on disk: " + *why);
  return out;
}

Generator& generator_of(const CodeTarget& target, const std::string& name) {
  if (Generator* const known = target.generator) return *known;
  const Module module = open_module(target.asked);
  const auto refuse = [&](const std::string& wrong) {
    fail<KernelError>({.operation = "kernel " + name,
                       .with = {{"device", "cpu:0"}, {"module", target.file}},
                       .wrong = wrong,
                       .remedy = "Start the program again"});
  };
  if (!module.generator) refuse("the code-generation module cannot be opened any more: " + module.reason);
  if (module.build != target.build || module.generator->target().feature_bits != target.traits->feature_bits)
    refuse("the code-generation module was replaced while the program was running");
  target.generator = module.generator;
  return *module.generator;
}

}  // namespace tessera::cpu
