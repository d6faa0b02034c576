// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/mpi_library.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/os/process_tree.h"
#include "tessera/dist/error.h"

namespace tessera::dist {
namespace {

// File names of the libraries. libmpich.so.12 is Debian's name of libmpi.so.12. Files without a version may belong to
// any implementation.
const std::vector<std::string> open_mpi_files = {"libmpi.so.40", "libmpi_abi.so.1", "libmpi.so"};
const std::vector<std::string> mpich_files = {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi.so"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

enum class Family : unsigned char { open_mpi, mpich, any };
Family family_of(LauncherKind kind) {
  if (kind == LauncherKind::open_mpi) return Family::open_mpi;
  return kind == LauncherKind::hydra || kind == LauncherKind::pals || kind == LauncherKind::alps ? Family::mpich
                                                                                                 : Family::any;
}

/// Libraries of Open MPI use PMIx and libraries of MPICH use PMI, if the launcher provides both.
std::vector<std::string> files_for(const Launch& launch) {
  switch (family_of(launch.kind)) {
    case Family::open_mpi: return open_mpi_files;
    case Family::mpich: return mpich_files;
    case Family::any: break;
  }
  return config::text("PMIX_RANK") ? open_mpi_files + mpich_files : mpich_files + open_mpi_files;
}

/// Shortens the first line of MPI_Get_library_version: "Open MPI v4.1.4, package: ..." to "Open MPI 4.1.4",
/// "MPICH Version:\t4.0.2" to "MPICH 4.0.2".
std::string short_version(std::string_view text) {
  text = text.substr(0, text.find_first_of(",\n"));
  std::string words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \t:"), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (word.size() > 1 && word[0] == 'v' && std::isdigit(static_cast<unsigned char>(word[1]))) word.remove_prefix(1);
    if (word.empty() || word == "Version" || word == "version") continue;
    if (!words.empty()) words += ' ';
    words += word;
  }
  return words;
}

/// Sets `abi` and `implementation`. Returns why the library cannot be used, or an empty string.
std::string identify(MpiLibrary& mpi) {
#define TESSERA_ENTRY(member, symbol, ...) const auto member = mpi.library.function<__VA_ARGS__>(#symbol);
  TESSERA_MPI_VERSIONS(TESSERA_ENTRY)
#undef TESSERA_ENTRY
  if (library_version == nullptr || version == nullptr || mpi.library.symbol("MPI_Init_thread") == nullptr)
    return fmt::format(
        "{} is not an MPI library: it does not define MPI_Init_thread, MPI_Get_version and "
        "MPI_Get_library_version",
        mpi.file);
  std::string text(mpi_version_text, '\0');
  int length = 0, major = 0, minor = 0, abi_major = 0, abi_minor = 0;
  if (library_version(text.data(), &length) != mpi_success || version(&major, &minor) != mpi_success)
    return fmt::format("{} does not report its version", mpi.file);
  text.resize(text.find('\0'));
  mpi.implementation = short_version(text);
  // A library with its own ABI reports version -1 of the standard ABI.
  if (abi_version != nullptr && abi_version(&abi_major, &abi_minor) == mpi_success && abi_major > 0) {
    if (abi_major != 1 || major < 5)  // MPICH 4.3 has a draft of it, with other values
      return fmt::format(
          "{} has version {}.{} of MPI's ABI and version {}.{} of MPI, but 1 and at least 5.0 are needed", mpi.name(),
          abi_major, abi_minor, major, minor);
    mpi.abi = MpiAbi::standard;
    mpi.is_open_mpi = text.starts_with("Open MPI");
    return {};
  }
  if (mpi.library.symbol("ompi_mpi_comm_world") != nullptr) {
    mpi.abi = MpiAbi::open_mpi;
    mpi.is_open_mpi = true;
    return {};
  }
  for (const char* member : {"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"})
    if (text.find(member) != text.npos) {
      mpi.abi = MpiAbi::mpich;
      mpi.can_hang_in_finalize = mpi.implementation.starts_with("MPICH ") && mpi.implementation < "MPICH 4.2" &&
                                 text.find("ch4:ucx") != text.npos;
      return {};
    }
  return fmt::format("{} has neither the ABI of Open MPI, nor that of MPICH, nor that of MPI 5", mpi.name());
}

std::string wrong_family(const MpiLibrary& mpi, const Launch& launch) {
  const Family family = family_of(launch.kind);
  if (family == Family::any || mpi.is_open_mpi == (family == Family::open_mpi)) return {};
  return fmt::format("{} does not belong to {}, which started this process", mpi.name(), launch.name);
}

[[noreturn]] void no_library(const Launch& launch, const std::string& wrong) {
  const Family family = family_of(launch.kind);
  const std::string owner = family == Family::open_mpi ? "Open MPI"
                            : family == Family::mpich  ? "MPICH, or of an MPI that is compatible with it"
                                                       : "the MPI that belongs to " + launch.name;
  fail<ConnectionError>(
      {.operation = "World",
       .wrong = wrong,
       .remedy = fmt::format("Set TESSERA_MPI_LIBRARY to the library of {}, or start the program with the mpirun of "
                             "the library",
                             owner)});
}

/// Returns paths of `files` in lib/ next to the bin/ of the launcher's program, so that an Open MPI in a folder of its
/// own is preferred over the one of the system.
std::vector<std::string> files_next_to_launcher(const std::vector<std::string>& files) {
  std::vector<std::string> found;
  for (const auto& program : os::ancestor_programs(3))
    for (const std::string& file : files) {
      const auto path = program.parent_path().parent_path() / "lib" / file;
      std::error_code error;
      if (program.parent_path().filename() == "bin" && std::filesystem::exists(path, error))
        found.push_back(path.string());
    }
  return found;
}

/// Returns the MPI libraries that are loaded in this process.
std::vector<MpiLibrary> loaded_libraries() {
  std::vector<MpiLibrary> all;
  const auto add = [&](os::Library library, std::string file) {
    MpiLibrary mpi{.library = std::move(library), .file = std::move(file)};
    if (identify(mpi).empty()) all.push_back(std::move(mpi));
  };
  for (const std::string& file : open_mpi_files + mpich_files)
    if (os::Library library = os::Library::find_loaded({&file, 1}); library.loaded()) add(std::move(library), file);
  const os::Library program = os::Library::of_program();
  if (const void* entry = program.symbol("MPI_Init_thread")) add(program, os::file_of(entry).filename().string());
  return all;
}

}  // namespace

const MpiConstants& MpiLibrary::constants() const {
  return abi == MpiAbi::open_mpi ? open_mpi_constants : abi == MpiAbi::mpich ? mpich_constants : standard_constants;
}

MpiHandles MpiLibrary::handles() const {
  if (abi == MpiAbi::mpich) return mpich_handles;
  if (abi == MpiAbi::standard) return standard_handles;
  // A program that is linked with Open MPI and uses a handle may have a copy of it (a copy relocation), which is the one
  // that the library uses.
  const os::Library program = os::Library::of_program();
  const auto handle = [&](const char* name) {
    void* const own = program.symbol(name);
    return reinterpret_cast<std::uintptr_t>(own != nullptr ? own : library.symbol(name));
  };
  return {handle("ompi_mpi_comm_world"), handle("ompi_mpi_comm_null"), handle("ompi_mpi_byte"),
          handle("ompi_mpi_errors_return")};
}

MpiLibrary open_mpi_library(const Launch& launch) {
  // hwloc, which Open MPI uses, would load plugins for GPUs and X11, and with them libOpenCL and its drivers. The first
  // variable is for components in hwloc itself; plugins are loaded before it is read.
  ::setenv("HWLOC_COMPONENTS", "-opencl,-gl,-cuda,-nvml,-rsmi,-levelzero", 0);
  ::setenv("HWLOC_PLUGINS_BLACKLIST",
           "hwloc_opencl.so,hwloc_gl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so", 0);
  if (const auto named = config::text("TESSERA_MPI_LIBRARY")) {
    MpiLibrary mpi{.library = os::Library::open(*named), .file = *named};
    std::string wrong = mpi.library.loaded() ? identify(mpi) : mpi.library.reason();
    if (wrong.empty()) wrong = wrong_family(mpi, launch);
    if (!wrong.empty()) no_library(launch, "TESSERA_MPI_LIBRARY: " + wrong);
    return mpi;
  }
  for (MpiLibrary& mpi : loaded_libraries()) {
    if (const std::string wrong = wrong_family(mpi, launch); !wrong.empty())
      no_library(launch, "the program has loaded an MPI library: " + wrong);
    return std::move(mpi);
  }
  const std::vector<std::string> files = files_for(launch);
  std::string reasons;
  for (const std::string& file : files_next_to_launcher(files) + files) {
    MpiLibrary mpi{.library = os::Library::open(file), .file = file};
    std::string wrong = mpi.library.loaded() ? identify(mpi) : mpi.library.reason();
    if (wrong.empty()) wrong = wrong_family(mpi, launch);
    if (wrong.empty()) return mpi;
    reasons += (reasons.empty() ? "" : "; ") + wrong;
  }
  no_library(launch,
             fmt::format("{} started this process, but its MPI library was not found ({})", launch.name, reasons));
}

MpiLibrary initialised_mpi_library() {
  for (MpiLibrary& mpi : loaded_libraries()) {
    int flag = 0;
    const auto initialised = mpi.library.function<int(int*)>("MPI_Initialized");
    if (initialised != nullptr && initialised(&flag) == mpi_success && flag != 0) return std::move(mpi);
  }
  fail<ConnectionError>({.operation = "World",
                         .wrong = "this process has not initialised MPI, so that it has no communicator",
                         .remedy = "Call MPI_Init_thread first, or create the World without a communicator"});
}

}  // namespace tessera::dist
