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
[[noreturn]] void refuse(const std::string& item) {
  std::fprintf(stderr, "fake driver: TESSERA_FAKE_FAULT holds \"%s\", which is no fault (see tests/drivers/faults.h)\n",
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
  s.devices = static_cast<int>(number("TESSERA_FAKE_DEVICES", 1));
  s.memory = number("TESSERA_FAKE_MEMORY", s.memory);
  s.delay_us = static_cast<std::uint32_t>(number("TESSERA_FAKE_DELAY_US", s.delay_us));
  s.seed = number("TESSERA_FAKE_SEED", number("TESSERA_TEST_SEED", 1));
  s.warp = static_cast<std::uint32_t>(number("TESSERA_FAKE_WARP", 0));
  s.leaks = number("TESSERA_FAKE_LEAKS", 0) != 0;
  if (const char* file = std::getenv("TESSERA_FAKE_BREACHES")) s.breaches = file;
  return s;
}

Faults Faults::from_environment() {
  static const std::set<std::string> known = {
      "init",      "crash-init", "segv-init", "kill-init", "exit-init",   "print-init",   "hang-init",
      "slow-init", "no-devices", "reversed",  "context",   "instantiate", "graph-launch", "no-graphs",
      "oom",       "host-oom",   "launch",    "lost",      "late",        "wrong",        "compile",
      "cubin",     "driver",     "compiler",  "hip-major", "threads",     "ze-api",       "ze-drivers",
      "no-target", "no-peers",   "peer",      "blas",      "blas-choose", "blas-create",  "blas-none"};
  Faults faults;
  const char* text = std::getenv("TESSERA_FAKE_FAULT");
  static const char here = 0;
  Dl_info own{};
  if (const char* only = std::getenv("TESSERA_FAKE_ONLY"); only != nullptr && *only != 0)
    if (dladdr(&here, &own) != 0 && std::string(own.dli_fname).find(only) == std::string::npos) return faults;
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
