// SPDX-License-Identifier: Apache-2.0
// GGUF files: round trips, malformed files, and random damage (the seed is printed). Each malformed file is a valid
// file with one change. The malformed files include the cases of llama.cpp's tests/test-gguf.cpp.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/os/input_file.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

// A file that is built field by field, so that any field can be invalid. Records the offsets of the fields.
struct Raw {
  struct Entry {
    std::string key;
    std::uint32_t type;
    std::string payload;  // raw bytes
    std::optional<std::uint64_t> key_size = {};
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type;
    std::uint64_t offset;
    std::optional<std::uint64_t> name_size = {};
    std::optional<std::uint32_t> dim_count = {};
  };
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count = {}, entry_count = {};
  std::vector<Entry> entries;
  std::vector<Tensor> tensors;
  std::uint64_t padding = 32;  // alignment of the data section
  std::uint64_t data_bytes = 0;

  // Filled by bytes().
  std::vector<std::uint64_t> entry_at, tensor_at, dim_count_at, dims_at, type_at, offset_at;
  std::uint64_t data_at = 0;

  Bytes bytes() {
    std::string out;
    const auto put = [&](auto v) { out.append(reinterpret_cast<const char*>(&v), sizeof(v)); };
    out += magic;
    put(version);
    put(tensor_count.value_or(tensors.size()));
    put(entry_count.value_or(entries.size()));
    for (const Entry& e : entries) {
      entry_at.push_back(out.size());
      put(e.key_size.value_or(e.key.size()));
      out += e.key;
      put(e.type);
      out += e.payload;
    }
    for (const Tensor& t : tensors) {
      tensor_at.push_back(out.size());
      put(t.name_size.value_or(t.name.size()));
      out += t.name;
      dim_count_at.push_back(out.size());
      put(t.dim_count.value_or(static_cast<std::uint32_t>(t.dims.size())));
      dims_at.push_back(out.size());
      for (const std::uint64_t dim : t.dims) put(dim);
      type_at.push_back(out.size());
      put(t.type);
      offset_at.push_back(out.size());
      put(t.offset);
    }
    while (out.size() % padding != 0) out += '\0';
    data_at = out.size();
    out.append(data_bytes, '\x11');
    const auto* p = reinterpret_cast<const std::byte*>(out.data());
    return {p, p + out.size()};
  }
};

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
std::string raw_text(const std::string& text) { return raw(std::uint64_t{text.size()}) + text; }

// Two tensors: two f32 rows of three elements (24 bytes, padded to 32), and a q8_0 row of 64 elements (68 bytes).
Raw sound() {
  Raw file;
  file.entries = {{"general.name", 8, raw_text("a name")}, {"some.count", 4, raw(std::uint32_t{7})}};
  file.tensors = {{"a", {3, 2}, 0, 0}, {"b", {64}, 8, 32}};
  file.data_bytes = 100;
  return file;
}

void expect_error(const Bytes& bytes, std::uint64_t offset, const std::string& field, const std::string& wrong) {
  try {
    GgufFile::parse(bytes, "test.gguf");
    ADD_FAILURE() << "parsed, expected: " << wrong;
  } catch (const FormatError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("file = test.gguf, offset = " + std::to_string(offset) + ", field = " + field),
              std::string::npos)
        << text << "\nexpected offset " << offset << " and field " << field;
    EXPECT_NE(text.find(wrong), std::string::npos) << text << "\nexpected: " << wrong;
  }
}

using test::expect_throw;
using test::Folder;

TEST(Gguf, ParsesValidFile) {
  for (const std::uint32_t version : {2u, 3u}) {
    Raw file = sound();
    file.version = version;
    const Bytes bytes = file.bytes();
    const GgufFile read = GgufFile::parse(bytes, "test.gguf");
    EXPECT_EQ(read.version(), version);
    EXPECT_EQ(read.alignment(), 32u);
    EXPECT_EQ(read.data_offset(), file.data_at);
    EXPECT_EQ(read.get<std::string>("general.name"), "a name");
    ASSERT_EQ(read.tensors().size(), 2u);
    const GgufTensor& b = read.tensor("b");
    EXPECT_EQ(b.type, GgmlType::q8_0);
    EXPECT_EQ(b.bytes, 68u);
    EXPECT_EQ(b.elements, 64u);
    const auto data = std::span(bytes).subspan(file.data_at + 32, 68);
    EXPECT_TRUE(std::ranges::equal(read.data(b), data));
    Bytes part(8);
    read.read(b, 60, part);
    EXPECT_TRUE(std::ranges::equal(part, data.subspan(60)));
    expect_throw<ArgumentError>([&] { read.read(b, 61, part); },
                                {"test.gguf", "exceeds the size of the tensor", "8 bytes from offset 61"});
  }
}

TEST(Gguf, ParsesFileWithoutTensorsAndMetadata) {
  Raw file;
  const Bytes bytes = file.bytes();
  const GgufFile read = GgufFile::parse(bytes, "test.gguf");
  EXPECT_TRUE(read.tensors().empty());
  EXPECT_TRUE(read.metadata().empty());
  // Without tensors, the data section and the padding before it may be missing.
  EXPECT_NO_THROW(GgufFile::parse(std::span(bytes).first(24), "test.gguf"));
}

TEST(GgufMalformed, RejectsInvalidHeaders) {
  const auto with = [](auto change) {
    Raw file = sound();
    change(file);
    return file.bytes();
  };
  expect_error(with([](Raw& f) { f.magic = "FUGG"; }), 0, "magic", "begins with \"FUGG\"");
  expect_error(with([](Raw& f) { f.magic = "gguf"; }), 0, "magic", "begins with \"gguf\"");
  expect_error(with([](Raw& f) { f.version = 0; }), 4, "version", "the version is 0");
  expect_error(with([](Raw& f) { f.version = 1; }), 4, "version", "version 1 is not supported");
  expect_error(with([](Raw& f) { f.version = 4; }), 4, "version", "the version is 4; versions 2 and 3 are supported");
  expect_error(with([](Raw& f) { f.version = 0x03000000; }), 4, "version", "big-endian");
  expect_error(with([](Raw& f) { f.version = 0x02000000; }), 4, "version", "big-endian");
  expect_error(with([](Raw& f) { f.tensor_count = ~0ull; }), 8, "tensor count", "18446744073709551615 tensors");
  expect_error(with([](Raw& f) { f.tensor_count = 1ull << 40; }), 8, "tensor count", "1099511627776 tensors");
  expect_error(with([](Raw& f) { f.entry_count = ~0ull; }), 16, "metadata count", "18446744073709551615 entries");
  expect_error(with([](Raw& f) { f.entry_count = 1ull << 40; }), 16, "metadata count", "1099511627776 entries");
  expect_error({}, 0, "magic", "4 bytes are needed and 0 are left");
}

// The valid file with its second entry replaced.
Raw with_entry(Raw::Entry entry) {
  Raw file = sound();
  file.entries[1] = std::move(entry);
  return file;
}

void expect_entry_error(Raw::Entry entry, std::uint64_t from_key, const std::string& field, const std::string& wrong) {
  Raw file = with_entry(std::move(entry));
  const Bytes bytes = file.bytes();
  expect_error(bytes, file.entry_at[1] + from_key, field, wrong);
}

TEST(GgufMalformed, RejectsInvalidMetadata) {
  const std::string key_field = "metadata[1] key", k_field = "metadata[1] \"k\" value";
  const std::uint64_t type_at = 8 + 1, value_at = type_at + 4;  // offsets in an entry whose key is "k"
  EXPECT_NO_THROW(GgufFile::parse(with_entry({"k", 0, raw(std::uint8_t{1})}).bytes(), ""));

  expect_entry_error({"k", 0, "x", ~0ull}, 0, key_field, "the length 18446744073709551615 exceeds the file");
  expect_entry_error({"", 0, "x"}, 0, key_field, "the key is empty");
  expect_entry_error({std::string(65536, 'k'), 0, "x"}, 0, key_field, "more than the 65535 allowed");
  EXPECT_NO_THROW(GgufFile::parse(with_entry({std::string(65535, 'k'), 0, "x"}).bytes(), ""));
  expect_entry_error({"general.name", 0, "x"}, 0, key_field, "the key \"general.name\" occurs twice");

  expect_entry_error({"k", 13, "x"}, type_at, k_field, "the value type is 13");
  expect_entry_error({"k", ~0u, "x"}, type_at, k_field, "the value type is 4294967295");
  expect_entry_error({"k", 7, raw(std::uint8_t{2})}, value_at, k_field, "a bool is 2");
  EXPECT_NO_THROW(GgufFile::parse(with_entry({"k", 7, raw(std::uint8_t{1})}).bytes(), ""));
  expect_entry_error({"k", 8, raw(std::uint64_t{1} << 62)}, value_at, k_field,
                     "the length 4611686018427387904 exceeds the file");
  expect_entry_error({"k", 8, raw(~std::uint64_t{0})}, value_at, k_field, "exceeds the file");
}

TEST(GgufMalformed, RejectsInvalidArrays) {
  const std::string field = "metadata[1] \"k\" value";
  const std::uint64_t type_at = 8 + 1 + 4, count_at = type_at + 4;
  const auto array = [](std::uint32_t type, std::uint64_t count, const std::string& data = "") {
    return Raw::Entry{"k", 9, raw(type) + raw(count) + data};
  };
  EXPECT_NO_THROW(GgufFile::parse(with_entry(array(4, 2, "abcdefgh")).bytes(), ""));
  EXPECT_NO_THROW(GgufFile::parse(with_entry(array(8, 2, raw_text("") + raw_text("x"))).bytes(), ""));
  expect_entry_error(array(13, 2, "abcdefgh"), type_at, field, "the value type is 13");
  expect_entry_error(array(4, ~0ull, "abcdefgh"), count_at, field, "18446744073709551615 elements of type u32");
  expect_entry_error(array(4, 1ull << 62, "abcdefgh"), count_at, field, "4611686018427387904 elements of type u32");
  expect_entry_error(array(12, (1ull << 61) + 1, "abcdefgh"), count_at, field, "elements of type f64");
  expect_entry_error(array(8, 1ull << 61, "abcdefgh"), count_at, field, "elements of type string");
  expect_entry_error(array(9, 1ull << 61, "abcdefgh"), count_at, field, "elements of type array");
  expect_entry_error(array(7, 3, std::string("\0\1\5", 3)), count_at + 8 + 2, field, "a bool is 5");
  // An array contains a string that is longer than the file.
  expect_entry_error(array(8, 1, raw(~0ull)), count_at + 8, field, "the length 18446744073709551615 exceeds the file");

  const auto nested = [&](int depth) {
    std::string payload;
    for (int i = 1; i < depth; ++i) payload += raw(9u) + raw(std::uint64_t{1});
    return Raw::Entry{"k", 9, payload + raw(4u) + raw(std::uint64_t{1}) + "abcd"};
  };
  EXPECT_NO_THROW(GgufFile::parse(with_entry(nested(8)).bytes(), ""));
  expect_entry_error(nested(9), type_at + 8 * 12, field, "nested more than 8 deep");
  expect_entry_error(nested(5000), type_at + 8 * 12, field, "nested more than 8 deep");
}

TEST(GgufMalformed, RejectsInvalidAlignments) {
  const auto file = [](Raw::Entry alignment, std::uint64_t real) {
    Raw out = sound();
    out.entries.push_back(std::move(alignment));
    out.padding = real;
    out.tensors[1].offset = (24 + real - 1) / real * real;
    out.data_bytes = out.tensors[1].offset + 68;
    return out;
  };
  const auto expect = [&](Raw::Entry alignment, const std::string& wrong) {
    Raw f = file(std::move(alignment), 32);
    const Bytes bytes = f.bytes();
    expect_error(bytes, f.entry_at[2], "general.alignment", wrong);
  };
  const auto u32 = [](std::uint32_t v) { return Raw::Entry{"general.alignment", 4, raw(v)}; };
  for (const std::uint32_t good : {1u, 8u, 32u, 64u, 4096u}) {
    Raw f = file(u32(good), good);
    const Bytes bytes = f.bytes();
    const GgufFile read = GgufFile::parse(bytes, "");
    EXPECT_EQ(read.alignment(), good);
    EXPECT_EQ(read.data_offset(), f.data_at);
  }
  expect(u32(0), "the alignment is 0");
  expect(u32(13), "the alignment is 13; it must be a power of two");
  expect(u32(48), "the alignment is 48; it must be a power of two");
  expect({"general.alignment", 5, raw(std::int32_t{32})}, "the alignment has type i32; it must be u32");
  expect({"general.alignment", 10, raw(std::uint64_t{32})}, "the alignment has type u64; it must be u32");
  expect({"general.alignment", 8, raw_text("32")}, "the alignment has type string; it must be u32");
  expect({"general.alignment", 9, raw(4u) + raw(std::uint64_t{1}) + raw(32u)}, "type array of u32");
  // The alignment of the tensors differs from the declared alignment.
  Raw inconsistent = file(u32(64), 32);
  const Bytes bytes = inconsistent.bytes();
  expect_error(bytes, inconsistent.offset_at[1], "tensor[1] \"b\" offset", "32 is not a multiple of the alignment 64");
}

TEST(GgufMalformed, RejectsInvalidTensors) {
  const auto expect = [](const std::function<void(Raw&)>& change, std::vector<std::uint64_t> Raw::*at,
                         std::size_t index, std::uint64_t more, const std::string& part, const std::string& wrong) {
    Raw file = sound();
    change(file);
    const Bytes bytes = file.bytes();
    const std::string name = part == "name" ? "" : "\"" + file.tensors[index].name + "\" ";
    expect_error(bytes, (file.*at)[index] + more, "tensor[" + std::to_string(index) + "] " + name + part, wrong);
  };
  using F = Raw;
  expect([](F& f) { f.tensors[0].name_size = ~0ull; }, &F::tensor_at, 0, 0, "name", "exceeds the file");
  expect([](F& f) { f.tensors[0].name = std::string(65, 'n'); }, &F::tensor_at, 0, 0, "name",
         "more than the 64 allowed");
  expect([](F& f) { f.tensors[0].name = ""; }, &F::tensor_at, 0, 0, "name", "the name is empty");
  expect([](F& f) { f.tensors[1].name = "a"; }, &F::tensor_at, 1, 0, "name", "the tensor \"a\" occurs twice");
  Raw long_name = sound();
  long_name.tensors[0].name = std::string(64, 'n');
  EXPECT_NO_THROW(GgufFile::parse(long_name.bytes(), ""));

  expect([](F& f) { f.tensors[0].dim_count = 0; }, &F::dim_count_at, 0, 0, "dimension count", "has 0 dimensions");
  expect([](F& f) { f.tensors[0].dim_count = 5; }, &F::dim_count_at, 0, 0, "dimension count", "has 5 dimensions");
  expect([](F& f) { f.tensors[0].dim_count = ~0u; }, &F::dim_count_at, 0, 0, "dimension count",
         "4294967295 dimensions");
  expect([](F& f) { f.tensors[0].dims[0] = 0; }, &F::dims_at, 0, 0, "dimension 0", "the dimension is 0");
  expect([](F& f) { f.tensors[0].dims[1] = 0; }, &F::dims_at, 0, 8, "dimension 1", "the dimension is 0");
  expect([](F& f) { f.tensors[0].dims[1] = ~0ull; }, &F::dims_at, 0, 8, "dimension 1", "negative (-1)");
  expect([](F& f) { f.tensors[0].dims = {1ull << 32, 1ull << 31}; }, &F::dims_at, 0, 8, "dimension 1", "exceeds 2^63");
  expect(
      [](F& f) {
        f.tensors[0].dims = {1ull << 21, 1ull << 21, 1ull << 21, 2};
      },
      &F::dims_at, 0, 16, "dimension 2", "exceeds 2^63");
  expect([](F& f) { f.tensors[0].dims = {1ull << 61}; }, &F::dims_at, 0, 0, "dimension 0", "more than 2^63 bytes");
  expect([](F& f) { f.tensors[1].dims[0] = 48; }, &F::dims_at, 1, 0, "dimension 0",
         "48 elements, which is not a multiple of the block size 32 of q8_0 (8)");

  expect([](F& f) { f.tensors[0].type = 99; }, &F::type_at, 0, 0, "type", "the type is 99, which is not a ggml type");
  expect([](F& f) { f.tensors[0].type = ~0u; }, &F::type_at, 0, 0, "type", "4294967295, which is not a ggml type");
  expect([](F& f) { f.tensors[0].type = 4; }, &F::type_at, 0, 0, "type", "q4_2 (4), which was removed from ggml");
  expect([](F& f) { f.tensors[0].type = 36; }, &F::type_at, 0, 0, "type",
         "iq4_nl_4_4 (36), which was removed from ggml");

  expect([](F& f) { f.tensors[1].offset = 33; }, &F::offset_at, 1, 0, "offset",
         "33 is not a multiple of the alignment 32");
  expect([](F& f) { f.tensors[1].offset = 64; }, &F::offset_at, 1, 0, "offset", "the offset is 64");
  expect([](F& f) { f.tensors[1].offset = 0; }, &F::offset_at, 1, 0, "offset", "the offset is 0");
  expect([](F& f) { f.tensors[0].offset = 32; }, &F::offset_at, 0, 0, "offset", "it must be 0");
  expect([](F& f) { f.tensors[1].offset = ~0ull - 31; }, &F::offset_at, 1, 0, "offset", "18446744073709551584");
  expect([](F& f) { std::swap(f.tensors[0].offset, f.tensors[1].offset); }, &F::offset_at, 0, 0, "offset", "is 32");
}

TEST(GgufMalformed, RejectsTensorsWhoseTotalSizeOverflows) {
  Raw file;
  const std::uint64_t huge = 0x7fffffffffffffc0;
  file.tensors = {{"a", {huge}, 24, 0}, {"b", {huge}, 24, huge}};
  const Bytes bytes = file.bytes();
  expect_error(bytes, file.dims_at[1], "tensor[1] \"b\" dimension 0", "exceed 2^63 bytes in total");
}

TEST(GgufMalformed, RejectsTruncatedData) {
  Raw file = sound();
  const Bytes bytes = file.bytes();
  EXPECT_NO_THROW(GgufFile::parse(bytes, ""));
  expect_error(Bytes(bytes.begin(), bytes.end() - 1), file.data_at + 32, "tensor[1] \"b\" data", "the file ends at");
  expect_error(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(file.data_at) + 5), file.data_at,
               "tensor[0] \"a\" data", "the file ends at byte " + std::to_string(file.data_at + 5));
  expect_error(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(file.offset_at[1]) + 3),
               file.offset_at[1], "tensor[1] \"b\" offset", "8 bytes are needed and 3 are left");
  // The tensor declares more data than any file contains.
  file.tensors[1].dims = {1ull << 40};
  expect_error(file.bytes(), file.data_at + 32, "tensor[1] \"b\" data", "the data ends at byte");
}

TEST(Gguf, TypedGettersConvertAndCheckRange) {
  GgufWriter w;
  w.set("u8", std::uint8_t{200}).set("i8", std::int8_t{-3}).set("u64", ~std::uint64_t{0}).set("i64", std::int64_t{-5});
  w.set("f32", 1.5f).set("f64", 2.5).set("bool", true).set("text", std::string("words"));
  w.set("ints", std::vector<std::uint16_t>{1, 2, 60000}).set("texts", std::vector<std::string>{"a", "", "c"});
  w.set("bools", std::vector<bool>{true, false}).set("none", std::vector<float>{});
  w.set("nested", std::vector<GgufArray>{{std::vector<float>{1, 2}}, {std::vector<std::string>{"x"}}});
  const Bytes bytes = w.bytes();
  const GgufFile f = GgufFile::parse(bytes, "getters.gguf");

  EXPECT_EQ(f.get<std::uint8_t>("u8"), 200);
  EXPECT_EQ(f.get<std::uint32_t>("u8"), 200u);
  EXPECT_EQ(f.get<std::int64_t>("i8"), -3);
  EXPECT_EQ(f.get<std::uint64_t>("u64"), ~std::uint64_t{0});
  EXPECT_EQ(f.get<double>("f32"), 1.5);
  EXPECT_EQ(f.get<float>("f64"), 2.5f);
  EXPECT_TRUE(f.get<bool>("bool"));
  EXPECT_EQ(f.get<std::string>("text"), "words");
  EXPECT_EQ(f.get_array<std::int64_t>("ints"), (std::vector<std::int64_t>{1, 2, 60000}));
  EXPECT_EQ(f.get_array<bool>("bools"), (std::vector<bool>{true, false}));
  EXPECT_EQ(f.get_array<std::string>("texts"), f.get_strings("texts"));
  EXPECT_EQ(f.get_array<double>("none"), std::vector<double>{});
  EXPECT_EQ(std::get<GgufArray>(*f.find("nested")).size(), 2u);
  EXPECT_EQ(f.get_or<std::uint32_t>("missing", 9), 9u);
  EXPECT_EQ(f.get_or<std::uint32_t>("u8", 9), 200u);
  EXPECT_FALSE(f.find_as<float>("missing").has_value());
  EXPECT_EQ(f.find("missing"), nullptr);

  const auto refused = [&](auto&& body, std::vector<std::string> parts) {
    parts.push_back("getters.gguf");
    expect_throw<FormatError>(body, parts);
  };
  refused([&] { f.get<std::uint32_t>("llama.block_count"); }, {"key = llama.block_count", "does not contain this key"});
  refused([&] { f.get_strings("llama.list"); }, {"key = llama.list", "does not contain this key"});
  refused([&] { f.get<std::uint32_t>("text"); }, {"key = text", "type string; expected an integer"});
  refused([&] { f.get<std::uint32_t>("f32"); }, {"type f32; expected an integer"});
  refused([&] { f.get<std::uint32_t>("bool"); }, {"type bool; expected an integer"});
  refused([&] { f.get<float>("u8"); }, {"type u8; expected a floating-point number"});
  refused([&] { f.get<bool>("u8"); }, {"type u8; expected bool"});
  refused([&] { f.get<std::string>("texts"); }, {"type array of string; expected string"});
  refused([&] { f.get<std::uint32_t>("i64"); }, {"key = i64", "the value -5 is out of range"});
  refused([&] { f.get<std::int64_t>("u64"); }, {"the value 18446744073709551615 is out of range"});
  refused([&] { f.get<std::int8_t>("u8"); }, {"the value 200 is out of range"});
  refused([&] { f.get_array<std::int16_t>("ints"); }, {"the value 60000 is out of range"});
  refused([&] { f.get_array<float>("ints"); }, {"type array of u16; expected an array of a floating-point number"});
  refused([&] { f.get_array<std::int32_t>("u8"); }, {"type u8; expected an array of an integer"});
  refused([&] { f.get_strings("ints"); }, {"type array of u16; expected an array of string"});
  refused([&] { f.get_or<bool>("text", true); }, {"type string; expected bool"});
  refused([&] { f.tensor("blk.0.attn_q.weight"); }, {"tensor = blk.0.attn_q.weight", "does not contain this tensor"});
}

TEST(Gguf, UnsupportedTypesParseButCannotBeUsed) {
  GgufWriter w;
  w.add_tensor("good", {32}, GgmlType::q4_0, Bytes(18)).add_tensor("bad.weight", {256, 2}, GgmlType::tq1_0, Bytes(108));
  const Bytes bytes = w.bytes();
  const GgufFile f = GgufFile::parse(bytes, "k.gguf");
  EXPECT_NO_THROW(f.require_supported(f.tensor("good")));
  EXPECT_EQ(f.data(f.tensor("bad.weight")).size(), 108u);
  expect_throw<FormatError>([&] { f.require_supported(f.tensor("bad.weight")); },
                            {"k.gguf", "tensor = bad.weight", "type = tq1_0 (34)", "f32, f16, bf16, q8_0, q4_0"});
  expect_throw<FormatError>([&] { ggml_to_float(GgmlType::tq1_0, f.data(f.tensor("bad.weight"))); }, {"tq1_0 (34)"});
  expect_throw<FormatError>([&] { ggml_from_float(static_cast<GgmlType>(250), std::vector<float>(256)); },
                            {"quantise", "type", "not supported"});
  expect_throw<FormatError>([&] { ggml_from_float(GgmlType::iq4_xs, std::vector<float>(256)); },
                            {"iq4_xs (23)", "only be read"});
}

TEST(Gguf, TypeSizesMatchGgml) {
  // The sizes are from the static assertions in ggml-common.h, which add up the fields of each block.
  const auto expect = [](std::uint32_t id, const char* name, std::uint32_t block, std::uint32_t bytes) {
    const GgmlTypeInfo* t = ggml_type_info(id);
    ASSERT_NE(t, nullptr) << id;
    EXPECT_EQ(t->name, name);
    EXPECT_EQ(t->block, block) << name;
    EXPECT_EQ(t->bytes, bytes) << name;
  };
  const std::uint32_t half = 2, k = 256;
  expect(2, "q4_0", 32, half + 16);
  expect(3, "q4_1", 32, 2 * half + 16);
  expect(6, "q5_0", 32, half + 4 + 16);
  expect(7, "q5_1", 32, 2 * half + 4 + 16);
  expect(8, "q8_0", 32, half + 32);
  expect(9, "q8_1", 32, 2 * half + 32);
  expect(10, "q2_K", k, 2 * half + k / 16 + k / 4);
  expect(11, "q3_K", k, half + k / 4 + k / 8 + 12);
  expect(12, "q4_K", k, 2 * half + 12 + k / 2);
  expect(13, "q5_K", k, 2 * half + 12 + k / 2 + k / 8);
  expect(14, "q6_K", k, half + k / 16 + 3 * k / 4);
  expect(15, "q8_K", k, 4 + k + k / 16 * 2);
  expect(16, "iq2_xxs", k, half + k / 8 * 2);
  expect(17, "iq2_xs", k, half + k / 8 * 2 + k / 32);
  expect(18, "iq3_xxs", k, half + 3 * (k / 8));
  expect(19, "iq1_s", k, half + k / 8 + k / 16);
  expect(20, "iq4_nl", 32, half + 16);
  expect(21, "iq3_s", k, half + 13 * (k / 32) + k / 64);
  expect(22, "iq2_s", k, half + k / 4 + k / 16);
  expect(23, "iq4_xs", k, half + 2 + k / 64 + k / 2);
  expect(29, "iq1_m", k, k / 8 + k / 16 + k / 32);
  expect(30, "bf16", 1, 2);
  expect(34, "tq1_0", k, half + k / 64 + (k - 4 * k / 64) / 5);
  expect(35, "tq2_0", k, half + k / 4);
  expect(39, "mxfp4", 32, 1 + 16);
  expect(40, "nvfp4", 64, 4 + 32);
  expect(41, "q1_0", 128, half + 16);
  expect(42, "q2_0", 64, half + 16);
  for (const std::uint32_t gap : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, ~0u})
    EXPECT_EQ(ggml_type_info(gap), nullptr);
}

template <class T>
T random_scalar(std::mt19937_64& rng) {
  if constexpr (std::is_same_v<T, std::string>) {
    std::string out(rng() % 20, '\0');
    for (char& c : out) c = static_cast<char>(rng());
    return out;
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<double>(rng()) * 1e-9 - 3e9);
  } else {
    return static_cast<T>(rng());
  }
}

template <std::size_t I = 0>
GgufArray random_array(std::mt19937_64& rng, std::size_t type, int depth) {
  using Values = GgufArray::Values;
  if constexpr (I < std::variant_size_v<Values>) {
    if (type != I) return random_array<I + 1>(rng, type, depth);
    std::variant_alternative_t<I, Values> out;
    for (std::size_t n = rng() % 6; n > 0; --n) {
      if constexpr (I == 9)
        out.push_back(depth >= 7 ? GgufArray{} : random_array(rng, rng() % 13, depth + 1));
      else
        out.push_back(random_scalar<typename decltype(out)::value_type>(rng));
    }
    return {std::move(out)};
  }
  return {};
}

template <std::size_t I = 0>
GgufValue random_of(std::mt19937_64& rng, std::size_t type) {
  if constexpr (I < 13) {
    if (type != I) return random_of<I + 1>(rng, type);
    if constexpr (I == 9)
      return random_array(rng, rng() % 13, 1);
    else
      return GgufValue(std::in_place_index<I>, random_scalar<std::variant_alternative_t<I, GgufValue>>(rng));
  }
  return {};
}

TEST(Gguf, RandomFilesRoundTrip) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  for (int run = 0; run < 200; ++run) {
    const std::uint32_t version = 2 + rng() % 2, alignment = 1u << rng() % 8;
    GgufWriter w(version, alignment);
    std::vector<std::pair<std::string, GgufValue>> entries;
    std::vector<std::pair<GgufTensor, Bytes>> tensors;
    for (std::size_t i = 0, n = rng() % 20; i < n; ++i) {
      entries.emplace_back("key." + std::to_string(i), random_of(rng, rng() % 13));
      w.set(entries.back().first, entries.back().second);
    }
    for (std::size_t i = 0, n = rng() % 20; i < n; ++i) {
      const GgmlTypeInfo& type = ggml_types()[rng() % ggml_types().size()];
      std::vector<std::uint64_t> dims = {(1 + rng() % 4) * type.block};
      for (std::size_t d = rng() % 4; d > 0; --d) dims.push_back(1 + rng() % 5);
      Bytes data(ggml_tensor_bytes(type, dims).value());
      for (std::byte& b : data) b = static_cast<std::byte>(rng());
      w.add_tensor("tensor." + std::to_string(i), dims, type.type, data);
      tensors.push_back({{"tensor." + std::to_string(i), dims, type.type}, std::move(data)});
    }
    const Bytes bytes = w.bytes();
    const GgufFile f = GgufFile::parse(bytes, "random");
    EXPECT_EQ(f.version(), version);
    EXPECT_EQ(f.alignment(), alignment);
    ASSERT_EQ(f.metadata().size(), entries.size() + (alignment == 32 ? 0 : 1));
    for (const auto& [key, value] : entries) EXPECT_EQ(*f.find(key), value) << key;
    ASSERT_EQ(f.tensors().size(), tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const GgufTensor& t = f.tensors()[i];
      EXPECT_EQ(t.name, tensors[i].first.name);
      EXPECT_EQ(t.dims, tensors[i].first.dims);
      EXPECT_EQ(t.type, tensors[i].first.type);
      EXPECT_EQ((f.data_offset() + t.offset) % alignment, 0u);
      EXPECT_TRUE(std::ranges::equal(f.data(t), tensors[i].second));
    }
  }
}

Bytes small_file() {
  GgufWriter w;
  w.set("general.architecture", std::string("llama")).set("n", std::uint32_t{3}).set("flag", true);
  w.set("list", std::vector<std::string>{"a", "bc"}).set("f", std::vector<float>{1, 2});
  w.set("deep", std::vector<GgufArray>{{std::vector<std::uint8_t>{1}}});
  const float values[6] = {1, 2, 3, 4, 5, 6};
  w.add_tensor("x", {3, 2}, values).add_tensor("y", {32}, GgmlType::q8_0, Bytes(34));
  return w.bytes();
}

// Returns true if the file can be parsed and all tensors can be read, and false if this throws FormatError.
bool parses(std::span<const std::byte> bytes) {
  try {
    const GgufFile f = GgufFile::parse(bytes, "damaged");
    unsigned sum = 0;
    for (const GgufTensor& t : f.tensors())
      for (const std::byte b : f.data(t)) sum += static_cast<unsigned>(b);
    volatile unsigned sink = sum;
    static_cast<void>(sink);
    return true;
  } catch (const FormatError& e) {
    EXPECT_NE(std::string(e.what()).find("offset = "), std::string::npos) << e.what();
    return false;
  }
}

TEST(GgufDamaged, TruncationAtAnyByteIsDetected) {
  const Bytes whole = small_file();
  const GgufFile f = GgufFile::parse(whole, "");
  const std::uint64_t needed = f.data_offset() + f.tensors().back().offset + f.tensors().back().bytes;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Copy to a buffer of the exact size, so that the address sanitizer detects reads past the end.
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(parses(part), size >= needed) << size;
    if (size < needed) expect_throw<FormatError>([&] { GgufFile::parse(part, ""); }, {"incomplete"});
  }
}

TEST(GgufDamaged, AlteredBytesParseOrThrowFormatError) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  const Bytes whole = small_file();
  int parsed = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int i = 0; i < 12; ++i) {
      Bytes copy = whole;
      const auto bit = static_cast<std::byte>(1u << (i % 8));
      copy[at] = i < 8 ? copy[at] ^ bit : static_cast<std::byte>(i == 8 ? 0 : i == 9 ? 0xff : rng());
      parsed += parses(copy);
    }
  }
  EXPECT_GT(parsed, 0);
  for (int i = 0; i < 20000; ++i) {  // change a few random bytes
    Bytes copy = whole;
    for (std::size_t n = 1 + rng() % 4; n > 0; --n) copy[rng() % copy.size()] = static_cast<std::byte>(rng());
    parses(copy);
  }
}

TEST(GgufWriter, RejectsInvalidFiles) {
  expect_throw<ArgumentError>([] { GgufWriter(1); }, {"version = 1"});
  expect_throw<ArgumentError>([] { GgufWriter(3, 24); }, {"alignment = 24"});
  GgufWriter w;
  w.set("k", 1.0f);
  expect_throw<ArgumentError>([&] { w.set("k", 1.0f); }, {"key = k", "already exists"});
  expect_throw<ArgumentError>([&] { w.set("", 1.0f); }, {"1 to 65535"});
  expect_throw<ArgumentError>([&] { w.set("general.alignment", std::uint32_t{8}); }, {"constructor"});
  const float one[2] = {1, 2};
  w.add_tensor("t", {2}, one);
  expect_throw<ArgumentError>([&] { w.add_tensor("t", {2}, one); }, {"tensor = t", "already exists"});
  expect_throw<ArgumentError>([&] { w.add_tensor("u", {3}, one); }, {"8 bytes; type and shape require 12"});
  expect_throw<ArgumentError>([&] { w.add_tensor("u", {2}, GgmlType::q8_0, Bytes(2)); },
                              {"(2) does not fit type q8_0"});
  expect_throw<ArgumentError>([&] { w.add_tensor("u", {}, one); }, {"one to four"});
  expect_throw<ArgumentError>([&] { w.write("/no/such/folder/x.gguf"); }, {"/no/such/folder/x.gguf"});
}

TEST(GgufFiles, OpensValidAndRejectsInvalidFiles) {
  const Folder folder;
  GgufWriter w;
  const float values[2] = {1, 2};
  w.set("k", std::string("v")).add_tensor("t", {2}, values).write(folder / "good.gguf");
  GgufFile f = GgufFile::open(folder / "good.gguf");
  const GgufFile moved = std::move(f);  // moving keeps the file open
  EXPECT_EQ(moved.get<std::string>("k"), "v");
  EXPECT_EQ(ggml_to_float(GgmlType::f32, moved.data(moved.tensor("t"))), (std::vector<float>{1, 2}));

  const auto open = [&](const char* name) { return [&folder, name] { GgufFile::open(folder / name); }; };
  expect_throw<ArgumentError>(open("missing.gguf"), {"missing.gguf", "the file does not exist"});
  expect_throw<ArgumentError>(open("good.gguf/x"), {"the file does not exist"});
  std::filesystem::create_directory(folder / "folder.gguf");
  expect_throw<FormatError>(open("folder.gguf"), {"folder.gguf", "config.json"});
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_throw<ArgumentError>(open("pipe"), {"not a regular file"});
  std::ofstream(folder / "empty.gguf").close();
  expect_throw<FormatError>(open("empty.gguf"), {"empty.gguf", "the file is empty"});
  if (::geteuid() != 0) {  // root can read files without permissions
    std::filesystem::permissions(folder / "good.gguf", std::filesystem::perms::none);
    expect_throw<ArgumentError>(open("good.gguf"), {"permission denied"});
  }

  InputFile a(folder / "good.gguf"), b(folder / "good.gguf");
  const std::uint64_t size = a.size();
  a = std::move(b);
  EXPECT_EQ(b.size(), 0u);  // NOLINT: the moved-from state is specified
  EXPECT_EQ(a.size(), size);
  std::byte first{};
  a.read(0, {&first, 1});
  EXPECT_EQ(static_cast<char>(first), 'G');
}

TEST(GgufFiles, TruncatedFileThrowsAndReplacedFileIsStillRead) {
  const Folder folder;
  const auto path = folder / "model.gguf";
  GgufWriter w;
  const std::vector<float> values(100000, 1.5f);
  w.add_tensor("t", {100000}, values).write(path);
  const GgufFile f = GgufFile::open(path);
  const std::uint64_t size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size / 2);
  expect_throw<FormatError>([&] { f.data(f.tensor("t")); },
                            {"model.gguf", "truncated", "offset = " + std::to_string(size / 2), std::to_string(size)});
  Bytes part(400);
  f.read(f.tensor("t"), 0, part);  // data before the truncation can still be read
  EXPECT_EQ(ggml_to_float(GgmlType::f32, part), std::vector<float>(100, 1.5f));
  expect_throw<FormatError>([&] { GgufFile::open(path); }, {"the file ends at"});

  w.write(path);
  const GgufFile kept = GgufFile::open(path);
  std::filesystem::remove(path);
  std::ofstream(path) << "another";
  EXPECT_EQ(ggml_to_float(GgmlType::f32, kept.data(kept.tensor("t"))), values);
}

// A model that is split into three files. The second file has a different alignment.
struct SplitModel {
  Folder folder;
  GgufWriter parts[3] = {GgufWriter(3), GgufWriter(3, 64), GgufWriter(3)};
  std::string name(std::size_t i) const { return "m-0000" + std::to_string(i + 1) + "-of-00003.gguf"; }

  SplitModel() {
    parts[0].set("general.architecture", std::string("llama")).set("split.tensors.count", std::int32_t{4});
    for (std::uint16_t i = 0; i < 3; ++i) parts[i].set("split.no", i).set("split.count", std::uint16_t{3});
    parts[0].add_tensor("a", {2}, std::vector<float>{1, 2});
    parts[1].add_tensor("b", {3}, std::vector<float>{3, 4, 5}).add_tensor("c", {1}, std::vector<float>{6});
    parts[2].add_tensor("d", {2}, std::vector<float>{7, 8});
    for (std::size_t i = 0; i < 3; ++i) write(i);
  }
  void write(std::size_t i) const { parts[i].write(folder / name(i)); }
};

TEST(GgufSplit, OpensModelInSeveralFiles) {
  const SplitModel model;
  const GgufFile f = GgufFile::open(model.folder / model.name(0));
  ASSERT_EQ(f.tensors().size(), 4u);
  const std::pair<const char*, std::vector<float>> all[] = {{"a", {1, 2}}, {"b", {3, 4, 5}}, {"c", {6}}, {"d", {7, 8}}};
  for (const auto& [name, values] : all) {
    EXPECT_EQ(ggml_to_float(GgmlType::f32, f.data(f.tensor(name))), values) << name;
  }
  EXPECT_EQ(f.name(f.tensor("c")), (model.folder / model.name(1)).string());
  EXPECT_EQ(f.name(f.tensor("a")), f.name());
  // The part that contains this tensor does not exist in the other file.
  const SplitModel other;
  const GgufFile alone = [&] {
    GgufWriter w;
    w.add_tensor("a", {2}, std::vector<float>{1, 2}).write(other.folder / "alone.gguf");
    return GgufFile::open(other.folder / "alone.gguf");
  }();
  expect_throw<ArgumentError>([&] { alone.data(f.tensor("d")); }, {"does not belong to this file"});
}

TEST(GgufSplit, RejectsInvalidPartsAndNamesTheFile) {
  const auto refused = [](const SplitModel& m, std::size_t which, std::vector<std::string> parts) {
    expect_throw<FormatError>([&] { GgufFile::open(m.folder / m.name(which)); }, std::move(parts));
  };
  SplitModel m;
  refused(m, 1, {"this is part 2 of 3 of a model", "m-00001-of-00003.gguf"});
  refused(m, 2, {"this is part 3 of 3", "m-00001-of-00003.gguf"});
  const Bytes bytes = m.parts[0].bytes();
  expect_throw<FormatError>([&] { GgufFile::parse(bytes, "memory"); }, {"memory", "split.count = 3", "split model"});
  std::filesystem::copy_file(m.folder / m.name(0), m.folder / "renamed.gguf");
  expect_throw<FormatError>([&] { GgufFile::open(m.folder / "renamed.gguf"); },
                            {"renamed.gguf", "does not end in -00001-of-00003.gguf"});
  std::filesystem::remove(m.folder / m.name(2));
  refused(m, 0, {"the model has 3 parts, and one is missing: m-00003-of-00003.gguf"});
  std::filesystem::remove(m.folder / m.name(1));
  refused(m, 0, {"2 are missing: m-00002-of-00003.gguf, m-00003-of-00003.gguf"});
  m.write(1);
  std::filesystem::copy_file(m.folder / m.name(1), m.folder / m.name(2));
  refused(m, 0, {"m-00003-of-00003.gguf", "expected part 3 of 3, but the file is part 2 of 3"});
  const auto refused_with = [&](std::size_t part, const auto& change, std::vector<std::string> parts) {
    SplitModel changed;
    change(changed.parts[part]);
    changed.write(part);
    refused(changed, 0, std::move(parts));
  };
  refused_with(2, [](GgufWriter& w) { w.add_tensor("a", {1}, std::vector<float>{1}); },
               {"m-00003-of-00003.gguf", "the tensor \"a\" is also in another part"});
  refused_with(2, [](GgufWriter& w) { w.add_tensor("e", {1}, std::vector<float>{1}); },
               {"split.tensors.count = 4", "the parts have 5 tensors"});
  refused_with(1, [](GgufWriter& w) { w.set("llama.block_count", std::uint32_t{1}); },
               {"m-00002-of-00003.gguf", "the key \"llama.block_count\" differs from part 1"});
  GgufWriter wrong;
  wrong.set("split.no", std::uint16_t{3}).set("split.count", std::uint16_t{3});
  wrong.write(m.folder / "m-00004-of-00003.gguf");
  expect_throw<FormatError>([&] { GgufFile::open(m.folder / "m-00004-of-00003.gguf"); }, {"split.no = 3"});
  // If a part is truncated, the message contains the name of the part.
  m.write(2);
  std::filesystem::resize_file(m.folder / m.name(2), 40);
  refused(m, 0, {"m-00003-of-00003.gguf"});
}

TEST(GgufFiles, InvalidCountsInHugeFilesAllocateNoMemory) {
  // The header is followed by 64 GiB of zeros. A large count is plausible in such a file, but it must not cause large
  // allocations before the data is read.
  const Folder folder;
  const auto refused = [&](const std::string& start, const std::string& wrong) {
    const auto path = folder / "huge.gguf";
    std::ofstream(path, std::ios::binary) << start;
    std::error_code error;
    std::filesystem::resize_file(path, std::uintmax_t{1} << 36, error);
    if (error) GTEST_SKIP() << "no sparse files here";
    expect_throw<FormatError>([&] { GgufFile::open(path); }, {wrong});
  };
  const std::uint64_t many = std::uint64_t{1} << 30, none = 0, one = 1;
  const std::string head = "GGUF" + raw(3u);
  refused(head + raw(none) + raw(many), "the key is empty");
  refused(head + raw(many) + raw(none), "the name is empty");
  const auto entry = [&](const std::string& value) { return head + raw(none) + raw(one) + raw_text("k") + value; };
  refused(entry(raw(8u) + raw(4 * many)), "the length 4294967296 is more than the 268435456 allowed");
  refused(entry(raw(9u) + raw(0u) + raw(4 * many)),
          "4294967296 elements need more memory than the 268435456 bytes allowed");
  refused(entry(raw(9u) + raw(8u) + raw(many)), "1073741824 elements need more memory than");
  // Nested arrays with the largest possible count at each level. The innermost element type is invalid.
  const std::string level = raw(9u) + raw(std::uint64_t{20000000});
  refused(entry(raw(9u) + level + level + level + level + raw(99u)), "the value type is 99");
}

TEST(GgufFiles, MemoryForMetadataIsLimited) {
  // Each array has a million empty strings, which take 8 MB of a sparse file, but 32 MB of memory.
  const Folder folder;
  const auto path = folder / "holes.gguf";
  const std::uint64_t none = 0, keys = 40, texts = 1'000'000;
  std::ofstream out(path, std::ios::binary);
  out << "GGUF" << raw(3u) << raw(none) << raw(keys);
  for (std::uint64_t i = 0; i < keys; ++i) {
    out << raw_text("key" + std::to_string(i)) << raw(9u) << raw(8u) << raw(texts);
    out.seekp(static_cast<std::streamoff>(8 * texts), std::ios::cur);
  }
  out << "end";
  out.close();
  expect_throw<FormatError>([&] { GgufFile::open(path); },
                            {"metadata[8] \"key8\" value", "more than the 268435456 bytes of memory allowed"});
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return out;
}

TEST(GgmlBlocks, MatchGgufPy) {
  // Computed with gguf 0.19.0 from PyPI: gguf.quants.quantize of ((i * 37) % 101 - 50) / 7 in float32 for i < 64.
  std::vector<float> x(64);
  for (int i = 0; i < 64; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>((i * 37) % 101 - 50) / 7.0f;
  EXPECT_EQ(hex(ggml_from_float(GgmlType::q8_0, x)),
            "332b81df3d9af856b41270cd2b89e745a2005ebb1977d53390ee4caa0866c3217fdc"
            "0e2b3c96f656b0106fca2984e3439efd5db71777d1318beb4ba50565bf1f7fd93993");
  EXPECT_EQ(hex(ggml_from_float(GgmlType::q4_0, x)),
            "253be046acf258bd1379df358be046acf26800bb740fb953fd9731eb852fca640ea842fd");
  EXPECT_EQ(hex(ggml_from_float(GgmlType::q4_1, x)),
            "9e3b25c7d0369bf157bd1369ce248ae0469cf257643bdbc69bf157ad0368ce248ad0469bf257bd13");
  EXPECT_EQ(hex(ggml_from_float(GgmlType::q5_0, x)),
            "2537a4a52d6dc07c38f3bf6b26e2ae5a15d18d49f4c000b796b6b4a4d81d61a5fa3e72b7fb3f84c80c5094e9");
  EXPECT_EQ(hex(ggml_from_float(GgmlType::q5_1, x)),
            "603725c7a4a52d6db07b37e3af6a26d29d5905c18c48f4b02737dbc669494b5b27e2ae5a15d19d4904c07c38f3bf6b26");
  EXPECT_EQ(hex(ggml_from_float(GgmlType::bf16, x)).substr(0, 64),
            "e5c0eebf5b40b7c0dbbe9b4089c0803fc94037c01b40d7c0b7bf7740a9c00000");
  EXPECT_EQ(hex(ggml_from_float(GgmlType::f16, x)).substr(0, 64),
            "25c76ebfdb42b7c5dbb6db4449c4003c4946b7c1db40b7c6b7bdb74349c50000");
}

/// The root of the mean squared error of a round trip, relative to that of the values.
double round_trip_error(GgmlType type, std::span<const float> x) {
  const std::vector<float> y = ggml_to_float(type, ggml_from_float(type, x));
  double error = 0, sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (double{y[i]} - x[i]) * (double{y[i]} - x[i]);
    sum += double{x[i]} * x[i];
  }
  return std::sqrt(error / sum);
}

// The bounds are the errors of ggml's quantize_q4_K and so on (without an importance matrix) for such numbers, measured
// at 2026-08 with 512,000 numbers.
TEST(GgmlBlocks, ErrorsOfKTypesAreAtMostThoseOfGgml) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 0.02f);
  std::student_t_distribution<float> outliers(4);
  std::vector<float> x(256 * 200), y(x.size());
  for (float& v : x) v = normal(rng);
  for (float& v : y) v = 0.02f * outliers(rng);
  for (const auto& [type, of_normal, of_outliers] : {std::tuple{GgmlType::q2_K, 0.2959, 0.3448},
                                                     {GgmlType::q3_K, 0.1507, 0.1838},
                                                     {GgmlType::q4_K, 0.0712, 0.0866},
                                                     {GgmlType::q5_K, 0.0361, 0.0437},
                                                     {GgmlType::q6_K, 0.0178, 0.0229}}) {
    EXPECT_LE(round_trip_error(type, x), of_normal) << ggml_type_text(type);
    EXPECT_LE(round_trip_error(type, y), of_outliers) << ggml_type_text(type);
  }
}

TEST(GgmlBlocks, KTypesEncodeUnusualBlocks) {
  std::vector<float> ramp(256), halves(256, -2.0f), large(256);
  for (int i = 0; i < 256; ++i) ramp[static_cast<std::size_t>(i)] = static_cast<float>(i % 16);
  for (int i = 0; i < 256; ++i) large[static_cast<std::size_t>(i)] = static_cast<float>(i - 128) * 1e30f;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const GgmlType type : {GgmlType::q2_K, GgmlType::q3_K, GgmlType::q4_K, GgmlType::q5_K, GgmlType::q6_K}) {
    const auto zeros = ggml_to_float(type, ggml_from_float(type, std::vector<float>(256)));
    EXPECT_TRUE(std::ranges::all_of(zeros, [](float v) { return v == 0; })) << ggml_type_text(type);
    for (int i = 1; i < 1000; ++i)
      for (const float constant : {static_cast<float>(i) / 1000, -static_cast<float>(i) / 1000})
        ASSERT_LE(round_trip_error(type, std::vector<float>(256, constant)), type == GgmlType::q2_K ? 0.06 : 0.03)
            << ggml_type_text(type) << " " << constant;
    std::mt19937 rng(3);
    std::uniform_real_distribution<float> near(0.5f, 1.5f);
    std::vector<float> constants(256), small(256);
    for (int block = 0; block < 100; ++block) {  // each part of 32 has numbers that are nearly equal
      for (std::size_t i = 0; i < 256; ++i) constants[i] = i % 32 == 0 ? near(rng) : constants[i - 1] * 1.0001f;
      ASSERT_LE(round_trip_error(type, constants), type == GgmlType::q2_K ? 0.06 : 0.03) << ggml_type_text(type);
    }
    std::normal_distribution<float> tiny(0, 1e-5f);
    for (float& v : small) v = tiny(rng);
    EXPECT_LE(round_trip_error(type, small), 0.8) << ggml_type_text(type);
    std::fill_n(halves.begin(), 128, 3.0f);
    EXPECT_LE(round_trip_error(type, halves), 0.03) << ggml_type_text(type);
    EXPECT_LE(round_trip_error(type, ramp), type == GgmlType::q2_K || type == GgmlType::q3_K ? 0.15 : 0.08)
        << ggml_type_text(type);
    for (const std::vector<float>& bad : {large, std::vector<float>(256, nan), std::vector<float>(256, infinity)})
      EXPECT_NO_THROW(ggml_from_float(type, bad));
  }
  // Blocks are encoded alone, whatever the number of threads is.
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::vector<float> many(256 * 300);
  for (float& v : many) v = normal(rng);
  const Bytes whole = ggml_from_float(GgmlType::q4_K, many);
  for (const std::size_t block : {0u, 63u, 64u, 299u}) {
    const Bytes one = ggml_from_float(GgmlType::q4_K, std::span(many).subspan(256 * block, 256));
    EXPECT_TRUE(std::ranges::equal(one, std::span(whole).subspan(144 * block, 144))) << block;
  }
}

TEST(GgmlBlocks, LowNibblesContainTheFirstHalfOfABlock) {
  BlockQ4_0 block{half(2.0f), {}};
  for (int i = 0; i < 16; ++i) block.q[i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
  float out[32];
  dequantize(block, out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], static_cast<float>(2 * (i - 8)));
    EXPECT_EQ(out[i + 16], static_cast<float>(2 * (15 - i - 8)));
  }
}

TEST(GgmlBlocks, RoundTripErrorIsWithinBound) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 50);
  for (float& v : x) v = normal(rng);
  std::fill_n(x.begin(), 32, 0.0f);  // a block of zeros has scale 0
  const auto expect = [&](GgmlType type, float steps) {
    const auto y = ggml_to_float(type, ggml_from_float(type, x));
    ASSERT_EQ(y.size(), x.size());
    for (std::size_t b = 0; b < x.size(); b += 32) {
      float largest = 0;
      for (std::size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
      for (std::size_t i = b; i < b + 32; ++i) EXPECT_LE(std::fabs(x[i] - y[i]), largest * steps) << i;
    }
  };
  expect(GgmlType::f32, 0);
  expect(GgmlType::f16, 1.0f / 2048);
  expect(GgmlType::bf16, 1.0f / 256);
  expect(GgmlType::q8_0, 0.51f / 127 + 1.0f / 2048);
  expect(GgmlType::q4_0, 1.01f / 8 + 1.0f / 2048);  // a full step, because the range of q4_0 is not symmetric
  expect(GgmlType::q4_1, 1.02f / 15);               // half a step of a range of twice the largest magnitude, rounded
  expect(GgmlType::q5_0, 1.01f / 16 + 1.0f / 2048);
  expect(GgmlType::q5_1, 1.04f / 31);
  expect_throw<ArgumentError>([&] { ggml_from_float(GgmlType::q8_0, std::span(x).first(33)); },
                              {"q8_0 (8)", "size = 33"});
  expect_throw<ArgumentError>([&] { ggml_to_float(GgmlType::f16, Bytes(3)); }, {"f16 (1)", "size = 3"});
  // NaN and infinity must not cause undefined behaviour.
  const std::vector<float> bad = [&] {
    std::vector<float> v(32, NAN);
    v[3] = INFINITY;
    return v;
  }();
  EXPECT_NO_THROW(ggml_from_float(GgmlType::q8_0, bad));
  EXPECT_NO_THROW(ggml_from_float(GgmlType::q4_0, bad));
}

}  // namespace
}  // namespace tessera
