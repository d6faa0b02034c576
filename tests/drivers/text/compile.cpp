// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/text/compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "tests/drivers/text/blocks.h"

extern char** environ;

namespace tessera::text {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return seed ^ seed >> 29;
}

/// Returns the headers that are prepended to every kernel. They are a part of the cache key.
const std::string& headers() {
  static const std::string all = [] {
    std::string text;
    for (const char* name : {"host_abi.h", "text_on_host.h", "gpu_on_host.h", "metal_on_host.h", "metal_stdlib"})
      text += contents(fs::path(TESSERA_TEXT_HEADERS) / name);
    return text;
  }();
  return all;
}

int run(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> list;
  for (const std::string& word : command) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  int status = posix_spawnp(&child, list[0], &actions, nullptr, list.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) return 127;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// Returns the text between the parentheses that open at `at`, and sets `end` to the closing one. Ignores parentheses
/// in strings.
std::string_view in_parentheses(std::string_view text, std::size_t at, std::size_t* end) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == '"' && text[i - 1] != '\\') quoted = !quoted;
    if (quoted) continue;
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) {
      *end = i;
      return text.substr(at + 1, i - at - 1);
    }
  }
  return {};
}

/// Splits the text at each `mark` that is outside parentheses and strings.
std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> out(1);
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (!quoted && text[i] == '(') ++depth;
    if (!quoted && text[i] == ')') --depth;
    if (text[i] == mark && depth == 0 && !quoted)
      out.emplace_back();
    else
      out.back() += text[i];
  }
  return out;
}

/// Converts "op %0, {%1, %2};" with its operands to a function call. Returns an empty string if there is more than one
/// instruction.
std::string call_for(std::string_view statement) {
  const std::vector<std::string> parts = split(statement, ':');
  std::string instruction;
  bool quoted = false;
  for (const char c : parts[0]) {  // concatenates adjacent strings
    if (c == '"')
      quoted = !quoted;
    else if (quoted)
      instruction += c;
  }
  while (!instruction.empty() && (instruction.back() == ';' || instruction.back() == ' ')) instruction.pop_back();
  if (instruction.find(';') != std::string::npos || instruction.find('\\') != std::string::npos) return {};
  std::vector<std::string> operands;
  for (std::size_t part = 1; part < parts.size() && part < 3; ++part)
    for (const std::string& operand : split(parts[part], ',')) {
      const std::size_t open = operand.find('(');
      if (open == std::string::npos) continue;
      std::size_t end = 0;
      operands.emplace_back(in_parentheses(operand, open, &end));
    }
  const std::size_t blank = instruction.find(' ');
  std::string call = "ptx_";
  for (const char c : instruction.substr(0, blank)) call += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  call += "(";
  bool first = true;
  for (std::size_t at = blank; at != std::string::npos && (at = instruction.find('%', at)) != std::string::npos; ++at) {
    const std::size_t number = static_cast<std::size_t>(std::atoi(instruction.c_str() + at + 1));
    if (number >= operands.size()) return {};
    call += (first ? "" : ", ") + operands[number];
    first = false;
  }
  return call + ")";
}

}  // namespace

std::string calls_for_ptx(const std::string& text) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find("asm"); at != text.npos; at = text.find("asm", at + 3)) {
    if (at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_')) continue;
    std::size_t open = at + 3;
    while (open < text.size() && (std::isspace(static_cast<unsigned char>(text[open])) || text[open] == '_')) ++open;
    if (text.compare(open, 8, "volatile") == 0) open = text.find('(', open);
    if (open >= text.size() || text[open] != '(') continue;
    std::size_t end = 0;
    const std::string_view inner = in_parentheses(text, open, &end);
    const std::string call = call_for(inner);
    if (call.empty()) continue;
    out += text.substr(done, at - done) + call;
    done = end + 1;
    at = end;
  }
  return out + text.substr(done);
}

std::string without_attributes(const std::string& text) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find("[["); at != text.npos; at = text.find("[[", done)) {
    out += text.substr(done, at - done);
    done = text.find("]]", at) + 2;
  }
  return out + text.substr(done);
}

CompiledText compile(const std::string& source, Language language, const std::vector<std::string>& kernels) {
  std::string text = language == Language::cuda    ? calls_for_ptx(source)
                     : language == Language::metal ? without_attributes(source)
                                                   : source;
  for (const std::string& name : kernels) text += "TESSERA_TEXT_KERNEL(" + name + ")\n";
  // -O1 compiles quickly and needs little stack. Contraction is disabled.
  std::vector<std::string> command = {TESSERA_TEXT_COMPILER,
                                      "-std=c++20",
                                      "-O1",
                                      "-w",
                                      "-fPIC",
                                      "-shared",
                                      "-pipe",
                                      "-ffp-contract=off",
                                      "-fno-strict-aliasing",
                                      "-fno-exceptions",
                                      "-x",
                                      "c++",
                                      "-nostdlib",
                                      "-I",
                                      TESSERA_TEXT_HEADERS};
  if (language == Language::metal) {
    command.insert(command.end(), {"-include", "metal_on_host.h"});
  } else {
    command.insert(command.end(), {"-include", "gpu_on_host.h"});
    if (text.find("extern __shared__") != text.npos) command.emplace_back("-DTESSERA_TEXT_DYNAMIC_SHARED=232448");
  }
  std::string key = text + headers();
  for (const std::string& word : command) key += "\n" + word;
  char stem[64];
  std::snprintf(stem, sizeof stem, "%016llx%016llx", static_cast<unsigned long long>(hash(key, 0xcbf29ce484222325u)),
                static_cast<unsigned long long>(hash(key, 0x9ae16a3b2f90404fu)));
  const fs::path folder = TESSERA_TEXT_CACHE;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  const std::string object = folder / (std::string(stem) + ".so");
  if (fs::exists(object)) return {true, object, {}};

  static std::atomic<unsigned> number = 0;
  const std::string own =
      folder / (std::string(stem) + "." + std::to_string(getpid()) + "." + std::to_string(++number));
  std::ofstream(own + ".cpp") << text;
  command.insert(command.end(), {own + ".cpp", "-o", own + ".so"});
  const bool made = run(command, own + ".log") == 0;
  CompiledText result = {made, object, made ? std::string() : contents(own + ".log")};
  if (made) {
    fs::rename(own + ".so", object);
    fs::rename(own + ".cpp", folder / (std::string(stem) + ".cpp"), ignored);
  } else if (result.log.empty()) {
    result.log = "error: the host's compiler " + std::string(TESSERA_TEXT_COMPILER) + " could not be run\n";
  }
  fs::remove(own + ".log", ignored);
  fs::remove(own + ".cpp", ignored);
  return result;
}

std::string metal_checker() {
  static const std::string found = [] {
    const std::string log = (fs::temp_directory_path() / ("tessera-clang-" + std::to_string(getpid()))).string();
    const bool clang = run({"clang++-16", "--version"}, log) == 0;
    fs::remove(log);
    return clang ? "clang++-16" : TESSERA_TEXT_COMPILER;
  }();
  return found;
}

CompiledText check_metal(const std::string& source) {
  const std::string stem = (fs::temp_directory_path() / ("tessera-metal-" + std::to_string(getpid()))).string();
  std::ofstream(stem + ".cpp") << without_attributes(source);
  std::vector<std::string> command = {metal_checker(),
                                      "-std=c++17",
                                      "-fsyntax-only",
                                      "-Wall",
                                      "-Werror",
                                      "-Wno-unused-function",
                                      "-Wno-unused-variable",
                                      "-Wno-unknown-pragmas",  // the text contains #pragma METAL fp contract
                                      "-I",
                                      TESSERA_TEXT_HEADERS,
                                      "-include",
                                      "metal_on_host.h",
                                      "-x",
                                      "c++",
                                      stem + ".cpp"};
  if (metal_checker().find("clang") != std::string::npos) command.emplace_back("-DTESSERA_TEXT_SPACES");
  const bool made = run(command, stem + ".log") == 0;
  CompiledText result = {made, made ? "checked" : "", contents(stem + ".log")};
  fs::remove(stem + ".cpp");
  fs::remove(stem + ".log");
  return result;
}

Object::Object(const std::string& file) {
  library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error(dlerror());
  reinterpret_cast<void (*)(const Host*)>(dlsym(library_, "tessera_text_attach"))(&host());
  touch_ = reinterpret_cast<void (*)()>(dlsym(library_, "tessera_text_touch"));
  link_map* map = nullptr;
  if (dlinfo(library_, RTLD_DI_LINKMAP, &map) != 0) throw std::runtime_error(dlerror());
  struct Looked {
    ElfW(Addr) base;
    std::size_t bytes;
  } looked{map->l_addr, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* user) {
        auto& mine = *static_cast<Looked*>(user);
        if (info->dlpi_addr != mine.base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS) mine.bytes = info->dlpi_phdr[i].p_memsz;
        return 1;
      },
      &looked);
  block_bytes_ = looked.bytes;
}

std::string Object::run(const std::string& kernel, const KernelLaunch& launch, std::vector<void*> arguments,
                        void (*each)(const Thread&, void*), void* user, std::span<unsigned char> block_memory) const {
  const auto call = reinterpret_cast<void (*)(void**)>(dlsym(library_, ("tessera_text_call_" + kernel).c_str()));
  if (call == nullptr) return "the compiled text has no kernel " + kernel;
  touch_();
  void* own = nullptr;
  if (dlinfo(library_, RTLD_DI_TLS_DATA, &own) != 0) own = nullptr;
  // Shared memory is not initialised on a GPU, so it is filled with NaN in every float format. Large memory is filled
  // only once per launch.
  const bool each_block = block_bytes_ <= (64u << 10);
  const auto poison = [&] {
    if (own != nullptr) std::memset(own, 0xff, block_bytes_);
  };
  if (!each_block) poison();
  BlockRun run{.grid = launch.grid, .block = launch.block, .width = launch.width, .order = launch.order};
  run.begin_block = [&] {
    if (each_block && block_bytes_ > 1) poison();
    if (!block_memory.empty()) std::memset(block_memory.data(), 0xff, block_memory.size());
  };
  run.body = [&](const Thread& thread) {
    if (each != nullptr) each(thread, user);
    call(arguments.data());
  };
  const std::string error = run_blocks(run);
  std::fflush(stdout);  // so that the output of a kernel precedes later output of the program
  return error;
}

const Object& object_of(const std::string& file) {
  static std::mutex lock;
  static auto* const all = new std::map<std::string, std::unique_ptr<Object>>;
  std::lock_guard hold(lock);
  auto& object = (*all)[file];
  if (!object) object = std::make_unique<Object>(file);
  return *object;
}

}  // namespace tessera::text
