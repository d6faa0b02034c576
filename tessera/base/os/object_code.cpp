// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/object_code.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::os {

namespace {

constexpr std::size_t largest_page = 65536;  // the largest page size of the supported processors
constexpr std::size_t stub_bytes = 16;
#if defined(__x86_64__)
constexpr std::uint16_t own_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t own_machine = EM_AARCH64;
#endif

[[noreturn]] void refuse_object(const std::string& wrong) {
  fail<FormatError>({.operation = "object file", .wrong = wrong});
}

std::size_t rounded_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

}  // namespace

// The memory consists of two parts: sections with code and the stubs of external functions, and then the other sections
// and the table of addresses (GOT). Each part begins at a page.
struct ObjectCode::Loader {
  std::string_view object;
  FindFunction find;
  std::byte* memory = nullptr;
  std::vector<Elf64_Shdr> sections;
  std::vector<std::size_t> offsets;  ///< of the sections in `memory`; npos: not loaded
  std::vector<Elf64_Sym> symbols;
  std::string_view symbol_names, section_names;
  std::map<std::uint32_t, std::size_t> slots, stubs;  ///< by symbol: offsets of its GOT entry and of its stub
  std::size_t code_bytes = 0, bytes = 0;
  bool writable = false;
  static constexpr std::size_t npos = std::numeric_limits<std::size_t>::max();

  std::string_view piece(std::uint64_t offset, std::uint64_t size) const {
    if (offset > object.size() || size > object.size() - offset) refuse_object("it is truncated");
    return object.substr(offset, size);
  }
  template <class T>
  T read(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, piece(offset, sizeof value).data(), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> table(std::uint64_t offset, std::uint64_t count) const {
    if (count > object.size() / sizeof(T)) refuse_object("it is truncated");
    std::vector<T> all(count);
    if (count != 0) std::memcpy(all.data(), piece(offset, count * sizeof(T)).data(), count * sizeof(T));
    return all;
  }
  const Elf64_Shdr& section(std::uint64_t index) const {
    if (index >= sections.size()) refuse_object("it refers to a section that does not exist");
    return sections[index];
  }
  std::string_view name_of(const Elf64_Sym& symbol) const {
    if (symbol.st_name >= symbol_names.size()) refuse_object("the name of a symbol is outside the table of names");
    const std::string_view rest = symbol_names.substr(symbol.st_name);
    return rest.substr(0, rest.find('\0'));
  }

  void read_tables() {
    const auto header = read<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL)
      refuse_object("it is not a relocatable 64-bit ELF file");
    if (header.e_machine != own_machine) refuse_object("it is for another processor");
    if (header.e_shentsize != sizeof(Elf64_Shdr)) refuse_object("its section headers have an unknown size");
    sections = table<Elf64_Shdr>(header.e_shoff, header.e_shnum);
    const Elf64_Shdr& text = section(header.e_shstrndx);
    section_names = piece(text.sh_offset, text.sh_size);
    for (const Elf64_Shdr& s : sections)
      if (s.sh_type == SHT_SYMTAB) {
        symbols = table<Elf64_Sym>(s.sh_offset, s.sh_size / sizeof(Elf64_Sym));
        const Elf64_Shdr& names = section(s.sh_link);
        symbol_names = piece(names.sh_offset, names.sh_size);
      }
  }

  /// Unwind tables are not loaded, because kernels throw nothing.
  bool is_loaded(const Elf64_Shdr& s) const {
    const bool holds_bytes = s.sh_type == SHT_PROGBITS || s.sh_type == SHT_NOBITS;
    if ((s.sh_flags & SHF_ALLOC) == 0 || !holds_bytes) return false;
    if (s.sh_name > section_names.size()) refuse_object("the name of a section is outside the table of names");
    return !section_names.substr(s.sh_name).starts_with(".eh_frame");
  }

  void place(bool code) {
    for (std::size_t i = 0; i < sections.size(); ++i) {
      const Elf64_Shdr& s = sections[i];
      if (!is_loaded(s) || ((s.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
      const std::size_t alignment = std::max<std::uint64_t>(s.sh_addralign, 1);
      if (alignment > largest_page || (alignment & (alignment - 1)) != 0)
        refuse_object("a section has an invalid alignment");
      constexpr std::uint64_t most = std::uint64_t{1} << 30;
      if (s.sh_size > most || bytes > most) refuse_object("it is larger than 1 GiB");
      if (s.sh_type == SHT_PROGBITS) piece(s.sh_offset, s.sh_size);
      bytes = rounded_up(bytes, alignment);
      offsets[i] = bytes;
      bytes += s.sh_size;
      writable = writable || (s.sh_flags & SHF_WRITE) != 0;
    }
  }

  static bool calls(std::uint32_t type);
  static bool uses_slot(std::uint32_t type);
  bool is_external(std::uint32_t symbol) const { return symbols[symbol].st_shndx == SHN_UNDEF; }

  /// Calls `use` for each relocation of a loaded section, with the index of the section.
  template <class Use>
  void for_each_relocation(Use&& use) const {
    for (const Elf64_Shdr& s : sections) {
      if (s.sh_type == SHT_REL && is_loaded(section(s.sh_info))) refuse_object("it has relocations without addends");
      if (s.sh_type != SHT_RELA || !is_loaded(section(s.sh_info))) continue;
      for (const Elf64_Rela& r : table<Elf64_Rela>(s.sh_offset, s.sh_size / sizeof(Elf64_Rela))) {
        const auto symbol = static_cast<std::uint32_t>(ELF64_R_SYM(r.r_info));
        if (symbol >= symbols.size()) refuse_object("a relocation refers to a symbol that does not exist");
        use(s.sh_info, r, static_cast<std::uint32_t>(ELF64_R_TYPE(r.r_info)), symbol);
      }
    }
  }

  void lay_out() {
    offsets.assign(sections.size(), npos);
    place(true);
    for_each_relocation([&](std::size_t, const Elf64_Rela&, std::uint32_t type, std::uint32_t symbol) {
      if (uses_slot(type)) slots[symbol] = 0;
      if (calls(type) && is_external(symbol)) stubs[symbol] = slots[symbol] = 0;
    });
    bytes = rounded_up(bytes, stub_bytes);
    for (auto& [symbol, offset] : stubs) offset = bytes, bytes += stub_bytes;
    code_bytes = bytes = rounded_up(bytes, largest_page);
    place(false);
    bytes = rounded_up(bytes, sizeof(std::uint64_t));
    for (auto& [symbol, offset] : slots) offset = bytes, bytes += sizeof(std::uint64_t);
    bytes = std::max(rounded_up(bytes, largest_page), largest_page);
  }

  std::uint64_t address_of(std::uint32_t index) const {
    const Elf64_Sym& symbol = symbols[index];
    if (symbol.st_shndx == SHN_ABS) return symbol.st_value;
    if (is_external(index)) {
      const std::string_view name = name_of(symbol);
      const void* const address = find(name);
      if (address == nullptr)
        fail<KernelError>({.operation = "object file",
                           .with = {{"function", std::string(name)}},
                           .wrong = "the code calls a function that Tessera does not provide"});
      return reinterpret_cast<std::uint64_t>(address);
    }
    if (symbol.st_shndx >= sections.size() || offsets[symbol.st_shndx] == npos)
      refuse_object("a symbol is in a section that is not loaded");
    if (symbol.st_value > sections[symbol.st_shndx].sh_size) refuse_object("a symbol is outside its section");
    return reinterpret_cast<std::uint64_t>(memory) + offsets[symbol.st_shndx] + symbol.st_value;
  }

  void copy() {
    for (std::size_t i = 0; i < sections.size(); ++i)
      if (offsets[i] != npos && sections[i].sh_type == SHT_PROGBITS && sections[i].sh_size != 0)
        std::memcpy(memory + offsets[i], object.data() + sections[i].sh_offset, sections[i].sh_size);
    for (const auto& [symbol, offset] : slots) {
      const std::uint64_t address = address_of(symbol);
      std::memcpy(memory + offset, &address, sizeof address);
    }
    for (const auto& [symbol, offset] : stubs) write_stub(offset, slots.at(symbol));
  }
  void write_stub(std::size_t offset, std::size_t slot) const;

  void relocate() {
    for_each_relocation([&](std::size_t in, const Elf64_Rela& r, std::uint32_t type, std::uint32_t symbol) {
      if (type == 0) return;  // R_X86_64_NONE, R_AARCH64_NONE
      const std::uint64_t size = sections[in].sh_size;
      const std::size_t width = width_of(type);
      if (r.r_offset > size || width > size - r.r_offset) refuse_object("a relocation is outside its section");
      std::byte* const at = memory + offsets[in] + r.r_offset;
      const auto base = reinterpret_cast<std::uint64_t>(memory);
      std::uint64_t value = uses_slot(type)                           ? base + slots.at(symbol)
                            : calls(type) && stubs.count(symbol) != 0 ? base + stubs.at(symbol)
                                                                      : address_of(symbol);
      value += static_cast<std::uint64_t>(r.r_addend);
      apply(type, at, value);
    });
  }
  static std::size_t width_of(std::uint32_t type);
  static void apply(std::uint32_t type, std::byte* at, std::uint64_t value);
};

#if defined(__x86_64__)

bool ObjectCode::Loader::calls(std::uint32_t type) { return type == R_X86_64_PLT32; }
bool ObjectCode::Loader::uses_slot(std::uint32_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}
std::size_t ObjectCode::Loader::width_of(std::uint32_t type) {
  return type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
}
/// jmp *slot(%rip)
void ObjectCode::Loader::write_stub(std::size_t offset, std::size_t slot) const {
  constexpr std::size_t instruction = 6;
  const auto distance = static_cast<std::int32_t>(slot - (offset + instruction));
  const unsigned char code[2] = {0xff, 0x25};
  std::memcpy(memory + offset, code, sizeof code);
  std::memcpy(memory + offset + sizeof code, &distance, sizeof distance);
}
void ObjectCode::Loader::apply(std::uint32_t type, std::byte* at, std::uint64_t value) {
  const auto here = reinterpret_cast<std::uint64_t>(at);
  switch (type) {
    case R_X86_64_64: std::memcpy(at, &value, sizeof value); return;
    case R_X86_64_PC64: value -= here, std::memcpy(at, &value, sizeof value); return;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: {
      const auto distance = static_cast<std::int64_t>(value - here);
      const auto narrow = static_cast<std::int32_t>(distance);
      if (narrow != distance) refuse_object("a relocation does not reach its target");
      std::memcpy(at, &narrow, sizeof narrow);
      return;
    }
    default: refuse_object("relocations of type " + std::to_string(type) + " are not supported");
  }
}

#elif defined(__aarch64__)

bool ObjectCode::Loader::calls(std::uint32_t type) { return type == R_AARCH64_CALL26 || type == R_AARCH64_JUMP26; }
bool ObjectCode::Loader::uses_slot(std::uint32_t type) {
  return type == R_AARCH64_ADR_GOT_PAGE || type == R_AARCH64_LD64_GOT_LO12_NC;
}
std::size_t ObjectCode::Loader::width_of(std::uint32_t type) {
  return type == R_AARCH64_ABS64 || type == R_AARCH64_PREL64 ? 8 : 4;
}

namespace {
std::uint32_t adrp_bits(std::uint64_t value, std::uint64_t here) {
  const auto pages = static_cast<std::int64_t>((value & ~0xfffull) - (here & ~0xfffull)) >> 12;
  return static_cast<std::uint32_t>((pages & 3) << 29 | ((pages >> 2) & 0x7ffff) << 5);
}
}  // namespace

/// adrp x16, slot; ldr x16, [x16, slot]; br x16
void ObjectCode::Loader::write_stub(std::size_t offset, std::size_t slot) const {
  const auto here = reinterpret_cast<std::uint64_t>(memory) + offset;
  const auto to = reinterpret_cast<std::uint64_t>(memory) + slot;
  const std::uint32_t code[3] = {0x90000010u | adrp_bits(to, here),
                                 0xf9400210u | static_cast<std::uint32_t>((to & 0xfff) >> 3) << 10, 0xd61f0200u};
  std::memcpy(memory + offset, code, sizeof code);
}
void ObjectCode::Loader::apply(std::uint32_t type, std::byte* at, std::uint64_t value) {
  const auto here = reinterpret_cast<std::uint64_t>(at);
  const auto add_bits = [&](std::uint32_t bits) {
    std::uint32_t code;
    std::memcpy(&code, at, sizeof code);
    code |= bits;
    std::memcpy(at, &code, sizeof code);
  };
  const auto low = [&](unsigned shift) { return static_cast<std::uint32_t>((value & 0xfff) >> shift) << 10; };
  switch (type) {
    case R_AARCH64_ABS64: std::memcpy(at, &value, sizeof value); return;
    case R_AARCH64_PREL64: value -= here, std::memcpy(at, &value, sizeof value); return;
    case R_AARCH64_PREL32: {
      const auto distance = static_cast<std::int32_t>(value - here);
      std::memcpy(at, &distance, sizeof distance);
      return;
    }
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: return add_bits(static_cast<std::uint32_t>((value - here) >> 2) & 0x3ffffff);
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_GOT_PAGE: return add_bits(adrp_bits(value, here));
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return add_bits(low(0));
    case R_AARCH64_LDST16_ABS_LO12_NC: return add_bits(low(1));
    case R_AARCH64_LDST32_ABS_LO12_NC: return add_bits(low(2));
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC: return add_bits(low(3));
    case R_AARCH64_LDST128_ABS_LO12_NC: return add_bits(low(4));
    default: refuse_object("relocations of type " + std::to_string(type) + " are not supported");
  }
}

#endif

ObjectCode::ObjectCode(std::string_view object, FindFunction find) {
  Loader loader{.object = object, .find = find};
  loader.read_tables();
  loader.lay_out();
  void* const memory = mmap(nullptr, loader.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    fail<OutOfMemory>({.operation = "load machine code",
                       .with = {{"bytes", std::to_string(loader.bytes)}},
                       .wrong = "the system has no memory left"});
  memory_ = static_cast<std::byte*>(memory), bytes_ = loader.bytes;
  loader.memory = memory_;
  try {
    loader.copy();
    loader.relocate();
    for (std::uint32_t i = 0; i < loader.symbols.size(); ++i) {
      const Elf64_Sym& symbol = loader.symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || loader.is_external(i)) continue;
      functions_.emplace_back(loader.name_of(symbol), reinterpret_cast<const void*>(loader.address_of(i)));
    }
    const int data = loader.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if ((loader.code_bytes != 0 && mprotect(memory_, loader.code_bytes, PROT_READ | PROT_EXEC) != 0) ||
        (bytes_ != loader.code_bytes && mprotect(memory_ + loader.code_bytes, bytes_ - loader.code_bytes, data) != 0))
      fail<KernelError>({.operation = "load machine code",
                         .wrong = "the system does not allow this process to make memory executable",
                         .remedy = "Allow it in the security settings of the system (SELinux: execmem)"});
  } catch (...) {
    munmap(memory_, bytes_);
    throw;
  }
  __builtin___clear_cache(reinterpret_cast<char*>(memory_), reinterpret_cast<char*>(memory_) + loader.code_bytes);
}

ObjectCode::~ObjectCode() { munmap(memory_, bytes_); }

const void* ObjectCode::function(std::string_view name) const {
  for (const auto& [known, address] : functions_)
    if (known == name) return address;
  refuse_object("it does not define " + std::string(name));
}

}  // namespace tessera::os
