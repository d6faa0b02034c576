// SPDX-License-Identifier: Apache-2.0
// The vendors' own compilers take what is emitted; none of them needs a GPU. Each runs in a child process, since some
// of them crash on some architectures. A compiler that is not installed is named in the output and passed by.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/support/emit_zoo.h"

namespace tessera {
namespace {

namespace zoo = test::zoo;
namespace fs = std::filesystem;

struct Outcome {
  int status = 0;
  std::string output;
  bool ok() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  std::string what() const {
    return (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                : "exit " + std::to_string(WEXITSTATUS(status))) +
           "\n" + output;
  }
};
/// Runs `work` in a child with its output captured; the child's exit code is the result.
Outcome in_child(const std::function<int()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return {-1, "pipe failed"};
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], 1), dup2(ends[1], 2);
    alarm(240);
    const int code = work();
    std::fflush(nullptr);
    _exit(code);
  }
  close(ends[1]);
  Outcome o;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) o.output.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  waitpid(child, &o.status, 0);
  return o;
}

/// NVRTC and hiprtc have one shape.
struct RuntimeCompiler {
  const char* prefix;
  void* library;
  template <class F>
  F* get(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library, (std::string(prefix) + name).c_str()));
  }

  int compile(const std::string& text, const std::vector<std::string>& options) const {
    auto* create = get<int(void**, const char*, const char*, int, const char**, const char**)>("CreateProgram");
    auto* compile_program = get<int(void*, int, const char**)>("CompileProgram");
    auto* log_size = get<int(void*, std::size_t*)>("GetProgramLogSize");
    auto* get_log = get<int(void*, char*)>("GetProgramLog");
    if (!create || !compile_program || !log_size || !get_log) return std::puts("the library lacks a function"), 3;
    void* program = nullptr;
    if (create(&program, text.c_str(), "kernels", 0, nullptr, nullptr) != 0)
      return std::puts("CreateProgram failed"), 3;
    std::vector<const char*> o;
    for (const auto& s : options) o.push_back(s.c_str());
    const int result = compile_program(program, static_cast<int>(o.size()), o.data());
    std::size_t size = 0;
    if (log_size(program, &size) == 0 && size > 1) {
      std::string log(size, '\0');
      get_log(program, log.data());
      std::puts(log.c_str());
    }
    return result == 0 ? 0 : 1;
  }
};
std::vector<std::string> candidates(std::initializer_list<std::string> names, const std::string& folder_prefix,
                                    const std::string& stem) {
  std::vector<std::string> all(names);
  std::error_code none;
  for (const auto& e : fs::directory_iterator("/usr/local", none))
    if (e.path().filename().string().starts_with(folder_prefix))
      for (const auto& f : fs::directory_iterator(e.path() / "lib64", none))
        if (f.path().filename().string().starts_with(stem)) all.push_back(f.path().string());
  return all;
}
bool opens(const std::string& name) {  // asked in a child, so that this process stays free of vendors' libraries
  return in_child([&] { return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) ? 0 : 1; }).ok();
}
std::string first_that_opens(const std::vector<std::string>& names) {
  for (const auto& n : names)
    if (opens(n)) return n;
  return "";
}

struct Program {
  std::string what, text;
  bool once = false;  ///< one architecture is enough
};
std::vector<Program> programs(const emit::Dialect& dialect) {
  const auto everything = zoo::all();
  auto large = everything;
  if (dialect.language != emit::Language::opencl) large.push_back(zoo::much_shared_memory());
  return {{"the four kernels", zoo::emitted(zoo::steps(), dialect).text},
          {"everything", zoo::emitted(large, dialect).text},
          {"everything with wide indices and aliases", zoo::emitted(large, dialect, true, false).text, true}};
}
std::string numbered(const std::string& text) {
  std::string out;
  int line = 1;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += std::to_string(line) + ": " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

void test_runtime_compiler(const char* prefix, const std::string& library, const emit::Dialect& dialect,
                           const std::vector<std::string>& architectures, const std::string& option) {
  for (const auto& [what, text, once] : programs(dialect))
    for (const std::string& arch : architectures) {
      if (once && arch != architectures.back()) continue;
      const Outcome o = in_child([&] {
        void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!handle) return std::puts(dlerror()), 3;
        return RuntimeCompiler{prefix, handle}.compile(text, {option + arch});
      });
      ASSERT_TRUE(o.ok()) << library << " on " << what << " for " << arch << ": " << o.what() << "\n" << numbered(text);
      std::printf("%s takes %s for %s\n", library.c_str(), what.c_str(), arch.c_str());
    }
}

TEST(compilers, nvrtc_takes_cuda_c) {
  const std::string library = first_that_opens(
      candidates({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"}, "cuda", "libnvrtc.so"));
  if (library.empty()) GTEST_SKIP() << "passed by: NVRTC is not installed (libnvrtc.so of the CUDA toolkit)";
  test_runtime_compiler("nvrtc", library, emit::cuda_c(), {"sm_75", "sm_80", "sm_90", "sm_120"}, "--gpu-architecture=");
}

TEST(compilers, hiprtc_takes_hip) {
  const std::string library = first_that_opens(
      {"libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"});
  if (library.empty())
    GTEST_SKIP() << "passed by: hiprtc is not installed (Debian: libamdhip64-5, libhiprtc-builtins5)";
  test_runtime_compiler("hiprtc", library, emit::hip_c(), {"gfx908", "gfx90a", "gfx1030"}, "--gpu-architecture=");
}

TEST(compilers, ocloc_takes_opencl_c_for_intel) {
  if (std::system("ocloc --help > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "passed by: ocloc is not installed (Debian: intel-opencl-icd)";
  std::string folder = (fs::temp_directory_path() / "tessera-ocloc-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const std::string device : {"tgllp", "dg2", "pvc"}) {
    emit::Dialect dialect = emit::opencl_c_intel();
    dialect.fp64 = device == "pvc";  // the others have no doubles
    std::vector<ir::Function> fns = zoo::steps(), more = {zoo::softmax(), zoo::odds_and_ends()};
    for (DType t : {DType::i32, DType::u32, DType::i64, DType::u64, DType::f32, DType::i8, DType::u16})
      more.push_back(zoo::together(t));
    if (dialect.fp64) more.push_back(zoo::together(DType::f64));
    if (dialect.fp64)
      for (DType t : storable_dtypes) more.push_back(zoo::arithmetic(t));
    for (const auto& [what, list] : {std::pair{"the four kernels", fns}, {"the others", more}}) {
      const std::string text = zoo::emitted(list, dialect).text;
      const std::string file = folder + "/kernels.cl";
      std::ofstream(file) << text;
      const Outcome o = in_child([&] {
        if (chdir(folder.c_str()) != 0) return 3;
        // The OpenCL 3.0 header of Debian's compiler does not compile for pvc, which has no images.
        const char* options = device == "pvc" ? "-cl-std=CL2.0" : "-cl-std=CL3.0";
        execlp("ocloc", "ocloc", "compile", "-file", file.c_str(), "-device", device.c_str(), "-options", options,
               nullptr);
        return 3;
      });
      ASSERT_TRUE(o.ok()) << "ocloc on " << what << " for " << device << ": " << o.what() << "\n" << numbered(text);
      std::printf("ocloc takes %s for %s\n", what, device.c_str());
    }
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera
