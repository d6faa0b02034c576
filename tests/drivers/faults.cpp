// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/faults.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

namespace tessera::fake {
namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != 0 ? std::strtoull(text, nullptr, 0) : otherwise;
}
/// Returns true if the file name of this library contains `name`.
bool is_ours(const std::string& name) {
  static const char here = 0;
  Dl_info own{};
  return dladdr(&here, &own) != 0 && std::string(own.dli_fname).find(name) != std::string::npos;
}
/// Parses lists such as "1,cuda=3", which means 3 in the fake CUDA driver and 1 in all others.
std::uint64_t number_of_ours(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  std::istringstream list(text != nullptr ? text : "");
  for (std::string item; std::getline(list, item, ',');) {
    const std::size_t is = item.find('=');
    if (is == std::string::npos || is_ours("fake_" + item.substr(0, is)))
      otherwise = std::strtoull(item.c_str() + (is == std::string::npos ? 0 : is + 1), nullptr, 0);
  }
  return otherwise;
}
std::vector<std::uint32_t> numbers(const char* name) {
  const char* const text = std::getenv(name);
  std::istringstream list(text != nullptr ? text : "");
  std::vector<std::uint32_t> all;
  for (std::string item; std::getline(list, item, ',');)
    all.push_back(static_cast<std::uint32_t>(std::strtoul(item.c_str(), nullptr, 0)));
  return all;
}
[[noreturn]] void refuse(const std::string& item) {
  std::fprintf(stderr,
               "fake driver: TESSERA_FAKE_FAULT contains the unknown fault \"%s\" (see tests/drivers/faults.h)\n",
               item.c_str());
  std::_Exit(87);
}

}  // namespace

bool run_text() {
  const char* how = std::getenv("TESSERA_FAKE_RUN");
  return how != nullptr && std::strcmp(how, "text") == 0;
}

Settings Settings::from_environment() {
  Settings s;
  s.devices = static_cast<int>(number_of_ours("TESSERA_FAKE_DEVICES", 1));
  s.memory = number("TESSERA_FAKE_MEMORY", s.memory);
  s.delay_us = static_cast<std::uint32_t>(number("TESSERA_FAKE_DELAY_US", s.delay_us));
  s.kernel_us = numbers("TESSERA_FAKE_KERNEL_US");
  s.seed = number("TESSERA_FAKE_SEED", number("TESSERA_TEST_SEED", 1));
  s.warp = static_cast<std::uint32_t>(number("TESSERA_FAKE_WARP", 0));
  s.leaks = number("TESSERA_FAKE_LEAKS", 0) != 0;
  if (const char* file = std::getenv("TESSERA_FAKE_BREACHES")) s.breaches = file;
  return s;
}

Faults Faults::from_environment() {
  static const std::set<std::string> known = {
      "init",      "crash-init",   "segv-init", "kill-init",  "exit-init",   "print-init",   "hang-init",
      "slow-init", "no-devices",   "reversed",  "context",    "instantiate", "graph-launch", "no-graphs",
      "oom",       "host-oom",     "launch",    "lost",       "late",        "wrong",        "compile",
      "cubin",     "driver",       "compiler",  "hip-major",  "threads",     "ze-api",       "ze-drivers",
      "no-target", "no-peers",     "peer",      "peer-empty", "blas",        "blas-choose",  "blas-create",
      "blas-none", "blas-capture", "nccl",      "nccl-late",  "nccl-init"};
  Faults faults;
  const char* text = std::getenv("TESSERA_FAKE_FAULT");
  if (const char* only = std::getenv("TESSERA_FAKE_ONLY"); only != nullptr && *only != 0 && !is_ours(only))
    return faults;
  std::istringstream list(text != nullptr ? text : "");
  for (std::string item; std::getline(list, item, ',');) {
    Fault f;
    std::string rest = item;
    auto cut = [&](char mark) {
      const std::size_t at = rest.rfind(mark);
      if (at == std::string::npos) return std::string();
      std::string tail = rest.substr(at + 1);
      rest.resize(at);
      return tail;
    };
    if (const std::string t = cut('@'); !t.empty()) f.device = std::atoi(t.c_str());
    if (const std::string t = cut(':'); !t.empty()) f.code = std::atoi(t.c_str());
    if (const std::string t = cut('='); !t.empty()) {
      f.number = std::strtoull(t.c_str(), nullptr, 0);
      f.onward = t.back() == '+';
    }
    f.name = rest;
    if (!known.contains(f.name)) refuse(item);
    faults.faults_.push_back(std::move(f));
  }
  return faults;
}

const Fault* Faults::find(const std::string& name, int device) const {
  for (const Fault& f : faults_)
    if (f.name == name && (device < 0 || !f.device || *f.device == device)) return &f;
  return nullptr;
}

int Faults::strikes(const std::string& name, std::uint64_t count, int code, int device) const {
  const Fault* f = find(name, device);
  if (f == nullptr || count < f->number || (count > f->number && !f->onward)) return 0;
  return f->code.value_or(code);
}

}  // namespace tessera::fake
