// SPDX-License-Identifier: Apache-2.0
// Safetensors files: round trips on every device, hand-written valid and invalid files, and files that are truncated or
// damaged at random (the seed is printed). Also tests how much memory the reader allocates.
#include "tessera/array/safetensors.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <random>

#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace {
std::atomic<std::size_t> held, most_held;
}  // namespace

// sanitizer runtimes define these operators themselves
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  const std::size_t now = held += malloc_usable_size(p);
  for (std::size_t most = most_held; now > most && !most_held.compare_exchange_weak(most, now);) {}
  return p;
}
void operator delete(void* p) noexcept {
  held -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
#endif

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

std::string file_of(const std::string& header, const std::string& data, std::optional<std::uint64_t> length = {}) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length.value_or(header.size()) >> (8 * i) & 0xff);
  return out + header + data;
}
SafetensorsFile parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "test.safetensors");
}

TEST_P(OnEveryDevice, RoundTripsFiles) {
  const test::Folder folder;
  const std::string path = folder / "a.safetensors";
  std::vector<std::pair<std::string, Array>> arrays;
  for (const DType t : storable_dtypes) {
    const Array a = (Array::arange(24, 0, 1, DType::f32, Device{}).reshape({2, 3, 4}) - 3).astype(t).to(GetParam());
    arrays.emplace_back(std::string(dtype_name(t)) + ".\"quoted\" \xC3\xA9", a);
  }
  arrays.emplace_back("", Array::full({}, 7));
  arrays.emplace_back("none", Array::empty({0, 5}, DType::i16));
  const Array square = Array::from(numbers(9), Shape{3, 3});
  arrays.emplace_back("transposed", square.transpose());
  arrays.emplace_back("broadcast", square.slice(0, 1, 2).broadcast_to({4, 3}));
  arrays.emplace_back("pending", square * 2);
  const std::map<std::string, std::string> texts = {{"format", "pt"}, {"", "a \"text\"\n"}, {"k", ""}};
  save_safetensors(path, arrays, texts);

  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata(), texts);
  EXPECT_EQ(file.name(), path);
  ASSERT_EQ(file.tensors().size(), arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& [name, want] = arrays[i];
    const SafetensorsTensor& t = file.tensors()[i];
    EXPECT_EQ(t.name, name);
    EXPECT_EQ(t.shape, want.shape());
    ASSERT_TRUE(t.dtype) << name;
    EXPECT_EQ(*t.dtype, want.dtype());
    EXPECT_EQ(t.offset % dtype_size(want.dtype()), 0u) << name;
    const Array got = file.load(name);
    EXPECT_EQ(got.device(), GetParam());
    ASSERT_EQ(got.dtype(), want.dtype());
    ASSERT_EQ(got.shape(), want.shape());
    std::vector<std::byte> a(want.bytes()), b(want.bytes());
    if (!a.empty()) want.download(a.data()), got.download(b.data());
    EXPECT_EQ(a, b) << name;
  }
  EXPECT_EQ(file.load("", Device{}).device(), Device{});
  expect_throw<FormatError>([&] { file.load("missing"); }, {path, "missing", "no such tensor"});
}

TEST(Safetensors, ReadsAHandWrittenFile) {
  // In this file, the second tensor of the header is first in the data, a bool has the value 7, and the header is not
  // aligned.
  const std::string header = R"({"b":{"shape":[2],"dtype":"BOOL","data_offsets":[4,6]},)"
                             R"("a":{"dtype":"I16","shape":[1,2],"data_offsets":[0,4]}})"
                             "   ";
  const std::string bytes = file_of(header, std::string("\x01\x00\xFF\xFF\x00\x07", 6));
  const SafetensorsFile file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensor("a").offset, 8 + header.size());
  EXPECT_EQ(file.load("a").to_vector<std::int16_t>(), (std::vector<std::int16_t>{1, -1}));
  EXPECT_EQ(file.load("b").to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ(std::to_integer<int>(file.data(file.tensor("b"))[1]), 7);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_TRUE(file.metadata().empty());

  EXPECT_TRUE(parse(file_of("{}", "")).tensors().empty());
  EXPECT_EQ(parse(file_of(R"({"__metadata__":{"k":"v"}})", "")).metadata().at("k"), "v");
  // A scalar, and two tensors without elements, one of which lies between other tensors.
  const std::string three = file_of(
      R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"z":{"dtype":"F64","shape":[3,0],"data_offsets":[1,1]},)"
      R"("y":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},"t":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
      "\x05\xFE");
  const SafetensorsFile small = parse(three);
  EXPECT_EQ(small.load("s").item<std::uint8_t>(), 5);
  EXPECT_EQ(small.load("z").shape(), (Shape{3, 0}));
  EXPECT_EQ(small.load("t").to_vector<std::int8_t>(), (std::vector<std::int8_t>{-2}));
  // A tensor of another file.
  expect_throw<ArgumentError>([&] { parse(file_of("{}", "")).data(file.tensor("b")); }, {"does not belong"});
}

TEST(Safetensors, WritesTheDocumentedLayout) {
  const test::Folder folder;
  const std::string path = folder / "a.safetensors";
  const Array a = Array::from({std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{3}}), b = Array::from({1.f});
  save_safetensors(path, {{"a", a}, {"b", b}}, {{"k", "v"}});
  const std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(test::text_of(path), file_of(padded, std::string("\x00\x00\x80\x3F\x01\x02\x03", 7)));

  // If a file cannot be written, the old file is unchanged.
  const auto refused = [&](std::vector<std::pair<std::string, Array>> arrays, std::string_view why) {
    const std::string before = test::text_of(path);
    expect_throw<ArgumentError>([&] { save_safetensors(path, arrays); }, {path, why});
    EXPECT_EQ(test::text_of(path), before);
  };
  refused({{"a", a}, {"a", b}}, "two arrays have this name");
  refused({{"__metadata__", a}}, "reserved for the file's metadata");
  refused({{"\xFF", a}}, "not UTF-8");
  expect_throw<ArgumentError>([&] { save_safetensors(path, {{"a", a}}, {{"k", "\xC0"}}); }, {"not UTF-8"});
  expect_throw<ArgumentError>([&] { save_safetensors(folder.path(), {{"a", a}}); }, {folder.path().string()});
  EXPECT_EQ(test::names(folder.path()), std::vector<std::string>{"a.safetensors"});
}

TEST(Safetensors, UnsupportedDtypesThrowWhenLoaded) {
  const std::string bytes = file_of(R"({"f":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                                    R"("u":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
                                    "abcd");
  const SafetensorsFile file = parse(bytes);
  EXPECT_FALSE(file.tensor("f").dtype);
  EXPECT_EQ(file.tensor("f").dtype_name, "F8_E4M3");
  EXPECT_EQ(file.data(file.tensor("f")).size(), 3u);
  EXPECT_EQ(file.load("u").item<std::uint8_t>(), 'd');
  expect_throw<FormatError>([&] { file.load("f"); }, {"test.safetensors", "offset = 9", "field = tensor \"f\" dtype",
                                                      "does not support dtype F8_E4M3"});
}

/// Expects that `header`, followed by `data` bytes, is rejected at this position of the header, with this field and
/// reason.
void expect_bad(const std::string& header, std::size_t data, std::string_view at, const std::string& field,
                std::string_view why) {
  const std::size_t place = header.find(at);
  ASSERT_NE(place, std::string::npos) << header;
  expect_throw<FormatError>(
      [&] { parse(file_of(header, std::string(data, 'x'))); },
      {"file = test.safetensors", "offset = " + std::to_string(8 + place) + ",", "field = " + field, why});
}

TEST(SafetensorsMalformed, RejectsInvalidLengths) {
  const auto expect = [](const std::string& bytes, std::string_view offset, std::string_view why) {
    expect_throw<FormatError>([&] { parse(bytes); }, {offset, why});
  };
  expect("", "offset = 0", "8 bytes are needed, but the file has 0");
  expect("1234567", "offset = 0", "8 bytes are needed, but the file has 7");
  expect(file_of("{}", "", 3), "offset = 0", "the header has 3 bytes, but only 2 bytes follow");
  expect(file_of("{}", "", ~0ull), "offset = 0", "exceeds the format's limit of 100000000");
  expect(file_of("{}", "", 100'000'001), "offset = 0", "the length 100000001 exceeds the format's limit of 100000000");
  expect(std::string("GGUF\3\0\0\0 and tensors", 20), "offset = 0", "it is a GGUF file");
  // The first bytes of files written by torch.save (2.x, and 1.5 or with _use_new_zipfile_serialization=False), by
  // pickle.dump and by onnx.save.
  const auto convert = [](const std::string& bytes, std::string_view what, std::string_view how) {
    expect_throw<FormatError>([&] { parse(bytes); }, {"offset = 0", what, how});
  };
  convert(std::string("PK\3\4\0\0\10\10\0\0", 10), "it is a zip archive", "safetensors.torch.save_file(torch.load(");
  convert("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", ".pt file of PyTorch before 1.6",
          "safetensors.torch.save_file(torch.load(");
  convert("\x80\x04\x95\x0b\x01\x01\x01\x01\x01\x01}", "it is a Python pickle", "torch.load(");
  convert(
      "\x08\x08\x12\x07pytorch\x1a\x05"
      "2.1.0",
      "it is an ONNX model", "onnx.load(");
  expect("version https://git-lfs.github.com/spec/v1", "offset = 0", "it is a Git LFS pointer");
  expect(file_of("{}", "", 100'000'000), "offset = 0", "the header has 100000000 bytes, but only 2 bytes follow");
  expect(file_of("", ""), "offset = 8", "does not begin with {");
  expect(file_of("{}", "x"), "offset = 10", "1 bytes after the last tensor belong to no tensor");
  expect(file_of("{}", "", 1), "offset = ", "this is not JSON");
}

TEST(SafetensorsMalformed, RejectsInvalidJson) {
  const std::string h = "header";
  for (const char* text : {"[]", " {}", "\xEF\xBB\xBF{}", "null", "x"})
    expect_bad(text, 0, "", h, "does not begin with {");
  expect_bad("{} x", 0, "x", h, "this is not JSON: syntax error");
  expect_bad("{}[]", 0, "[]", h, "this is not JSON");
  expect_bad("{,}", 0, ",", h, "this is not JSON");
  expect_bad(R"({"a":})", 0, "}", h, "this is not JSON");
  expect_bad("{'a':1}", 0, "'", h, "this is not JSON");
  expect_bad("{\"\xFF\":1}", 0, "\xFF", h,
             "this is not JSON: syntax error while parsing object key - invalid string: ill-");
  expect_throw<FormatError>([] { parse(file_of(std::string("{}\0\0", 4), "")); }, {"offset = 10", "a zero byte"});
  // Nested values are rejected where they begin.
  expect_bad(R"({"a":[[)" + std::string(1 << 20, '['), 0, "[", "tensor \"a\"", "found a list, expected an object");
  std::string objects = R"({"a":{"dtype":)";
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  expect_bad(objects, 0, R"({"a":{"a")", "tensor \"a\" dtype", "found an object, expected a string");
  expect_bad(R"({"__metadata__":{"k":[[[]]]}})", 0, "[[[", "metadata \"k\"", "found a list, expected a string");
  expect_bad(R"({"__metadata__":{"k":1}})", 0, "1", "metadata \"k\"", "found a number, expected a string");
  expect_bad(R"({"__metadata__":"k"})", 0, "\"k\"", "metadata", "found a string, expected an object");
  expect_bad(R"({"a":null})", 0, "null", "tensor \"a\"", "found null, expected an object");
  expect_bad(R"({"__metadata__":{"k":"1","k":"2"}})", 0, R"("k":"2")", "metadata \"k\"", "the key \"k\" occurs twice");
  expect_bad(R"({"__metadata__":{}, "__metadata__":{}})", 0, R"("__metadata__":{}})", h, "occurs twice");
}

std::string tensor(const std::string& shape, const std::string& offsets, const std::string& dtype = "\"U8\"") {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string header(const std::string& shape, const std::string& offsets, const std::string& dtype = "\"U8\"") {
  return R"({"a":)" + tensor(shape, offsets, dtype) + "}";
}

TEST(SafetensorsMalformed, RejectsInvalidTensorEntries) {
  EXPECT_EQ(parse(file_of(header("[2]", "[0,2]"), "xy")).tensors().size(), 1u);
  const std::string a = "tensor \"a\"";
  expect_bad(R"({"a":{}})", 0, "\"a\"", a, "the tensor has no dtype");
  expect_bad(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "\"a\"", a, "the tensor has no data_offsets");
  expect_bad(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "\"a\"", a, "the tensor has no shape");
  expect_bad(R"({"a":{"dtype":"U8","dtype":"U8"}})", 1, R"("dtype":"U8"}})", a + " dtype", "this key occurs twice");
  expect_bad(R"({"a":{"shape":[],"shape":[]}})", 1, R"("shape":[]}})", a + " shape", "this key occurs twice");
  expect_bad(R"({"a":{"strides":[1]}})", 1, R"("strides")", a + " strides",
             "a tensor has only dtype, shape and data_offsets");
  expect_bad(R"({"a":)" + tensor("[1]", "[0,1]") + R"(,"a":)" + tensor("[1]", "[1,2]") + "}", 2,
             R"("a":)" + tensor("[1]", "[1,2]"), "header", "the name \"a\" occurs twice");
  // dtypes
  expect_bad(header("[1]", "[0,1]", "1"), 1, "1,", a + " dtype", "found a number, expected a string");
  expect_bad(header("[1]", "[0,1]", "[]"), 1, "[]", a + " dtype", "found a list, expected a string");
  // Shapes.
  const std::string s = a + " shape", n = ", expected a non-negative integer";
  expect_bad(header("\"\"", "[0,1]"), 1, "\"\"", s, "found a string, expected a list of numbers");
  expect_bad(header("[-1]", "[0,1]"), 1, "-1", s, "found a negative number" + n);
  expect_bad(header("[1.0]", "[0,1]"), 1, "1.0", s, "found a number that is too large or not an integer" + n);
  expect_bad(header("[1e0]", "[0,1]"), 1, "1e0", s, n);
  expect_bad(header("[true]", "[0,1]"), 1, "true", s, "found a bool" + n);
  expect_bad(header("[18446744073709551616]", "[0,1]"), 1, "1844", s, n);
  expect_bad(header("[18446744073709551615]", "[0,1]"), 1, "1844", s, "exceeds 2^48");
  expect_bad(header("[1, 281474976710657]", "[0,1]"), 1, "2814", s, "exceeds 2^48");
  expect_bad(header("[4294967296,4294967296]", "[0,0]"), 0, "[4294", s, "the tensor has more than 2^48 elements");
  expect_bad(header("[0,16777216,33554432]", "[0,0]"), 0, "[0,16", s, "the tensor has more than 2^48 elements");
  // Offsets.
  const std::string o = a + " data_offsets";
  expect_bad(header("[1]", "[0]"), 1, "[0]", o, "two offsets are needed, but there are 1");
  expect_bad(header("[1]", "[0,1,1]"), 1, "1]}}", o, "more than two offsets");
  expect_bad(header("[1]", "[1,0]"), 1, "[1,0]", o, "the data end at 0, before they begin at 1");
  expect_bad(header("[1]", "[0,-1]"), 1, "-1", o, "found a negative number" + n);
  expect_bad(header("[2]", "[0,1]"), 1, "[0,1]", o, "2 elements of U8 take 2 bytes, but the offsets span 1");
  expect_bad(header("[2]", "[0,4]", "\"F32\""), 4, "[0,4]", o,
             "2 elements of F32 take 8 bytes, but the offsets span 4");
  expect_bad(header("[281474976710656]", "[0,1]", "\"F64\""), 1, "[0,1]", o, "take 2251799813685248 bytes");
  expect_bad(header("[2]", "[0,2]"), 1, "[0,2]", o, "the data end at byte 2 after the header, but the file ends at 1");
  expect_bad(header("[1]", "[18446744073709551614,18446744073709551615]"), 1, "[1844", o, "the file ends at 1");
  // The layout.
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":)" + tensor("[2]", first) + R"(,"b":)" + tensor("[2]", second) + "}";
  };
  EXPECT_EQ(parse(file_of(two("[2,4]", "[0,2]"), "abcd")).tensors().size(), 2u);
  expect_bad(two("[0,2]", "[1,3]"), 3, "\"b\"", "tensor \"b\" data_offsets", "the data overlap those of \"a\"");
  expect_bad(two("[0,2]", "[0,2]"), 2, "\"b\"", "tensor \"b\" data_offsets", "the data overlap those of \"a\"");
  expect_bad(two("[0,2]", "[3,5]"), 5, "\"b\"", "tensor \"b\" data_offsets",
             "1 bytes before the data belong to no tensor");
  expect_bad(two("[1,3]", "[3,5]"), 5, "\"a\"", o, "1 bytes before the data belong to no tensor");
  expect_throw<FormatError>([&] { parse(file_of(two("[0,2]", "[2,4]"), "abcdef")); },
                            {"field = data", "2 bytes after"});
}

TEST(SafetensorsMalformed, MessagesTruncateLongNames) {
  const std::string name(1 << 16, 'n');
  const std::string text = test::text_of<FormatError>([&] { parse(file_of("{\"" + name + "\":1}", "")); });
  EXPECT_LT(text.size(), 500u);
}

std::string sound_file() {
  const test::Folder folder;
  const std::string path = folder / "a.safetensors";
  save_safetensors(path,
                   {{"layers.0.weight", Array::arange(6).reshape({2, 3})},
                    {"b", Array::arange(5, 0, 1, DType::u8)},
                    {"scalar", Array::full({}, 1, DType::f16)},
                    {"none", Array::empty({0, 2})}},
                   {{"format", "pt"}, {"step", "12"}});
  return test::text_of(path);
}

TEST(SafetensorsMalformed, RejectsFilesTruncatedAtAnyLength) {
  const test::Folder folder;
  const std::string path = folder / "cut.safetensors", whole = sound_file();
  EXPECT_EQ(parse(whole).tensors().size(), 4u);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    ASSERT_THROW(parse(whole.substr(0, n)), FormatError) << n;
    std::ofstream(path, std::ios::binary) << whole.substr(0, n);
    ASSERT_THROW(SafetensorsFile::open(path), FormatError) << n;
  }
  // The file is truncated after it was opened.
  std::ofstream(path, std::ios::binary) << whole;
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.load("b").size(), 5);
  std::filesystem::resize_file(path, whole.size() - 1);
  EXPECT_THROW(file.load("b"), FormatError);
  EXPECT_EQ(file.load("layers.0.weight").size(), 6);
}

/// Returns a header made of words that are often invalid in combination.
std::string random_header(std::mt19937_64& rng) {
  const auto pick = [&](std::initializer_list<const char*> words) {
    return std::string(words.begin()[rng() % words.size()]);
  };
  const auto number = [&] {
    return pick({"0", "1", "2", "3", "4", "8", "-1", "1.5", "1e3", "null", "281474976710656", "4294967296", "[[[[", "{",
                 "18446744073709551615", "18446744073709551616", "9223372036854775807", "\"1\""});
  };
  const auto small = [&] { return rng() % 8 == 0 ? number() : std::to_string(rng() % 5); };
  std::string out = "{";
  for (std::uint64_t n = rng() % 5; n > 0; --n) {
    if (out.size() > 1) out += rng() % 30 == 0 ? pick({"", ",,", ":"}) : ",";
    if (rng() % 6 == 0) {
      out += "\"__metadata__\":" + pick({"{}", R"({"a":"b"})", R"({"a":"b","a":"c"})", R"({"a":1})", "{\"", "[]"});
      continue;
    }
    out += pick({"\"a\"", "\"b\"", "\"c\"", "\"d\"", "\"\"", "\"\\u00e9\"", "\"\\ud800\"", "a", "\"a"}) + ":{";
    const std::string begin = small();
    std::vector<std::string> parts = {
        "\"dtype\":" + pick({"\"U8\"", "\"U8\"", "\"I16\"", "\"F32\"", "\"F8_E5M2\"", "\"\"", "1", "{}"}),
        "\"shape\":[", "\"data_offsets\":[" + begin + "," + small() + "]"};
    for (std::uint64_t d = rng() % 4; d > 0; --d) parts[1] += small() + (d > 1 ? "," : "");
    parts[1] += "]";
    if (rng() % 10 == 0) parts.push_back(parts[rng() % 3]);
    if (rng() % 10 == 0) parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(rng() % 3));
    std::shuffle(parts.begin(), parts.end(), rng);
    for (std::size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? "," : "") + parts[i];
    out += "}";
  }
  return out + pick({"}", "}", "}", "} ", "", "}}"});
}

TEST(Safetensors, DamagedFilesAreRejectedWithoutLargeAllocations) {
  std::mt19937_64 rng(testing::seed());
  const std::string whole = sound_file();
  const bool all = std::getenv("TESSERA_TEST_LONG") != nullptr;
  const int cases = all ? 1'000'000 : 24'000;
  std::size_t accepted = 0, worst = 0;
  std::string worst_file;
  for (int run = 0; run < cases; ++run) {
    std::string bytes;
    if (run % 2 == 0) {
      bytes = file_of(random_header(rng), std::string(rng() % 8, 'x'));
    } else {
      bytes = whole;
      for (std::uint64_t n = 1 + rng() % 3; n > 0 && !bytes.empty(); --n) {
        const std::size_t at = rng() % (rng() % 4 == 0 ? std::min<std::size_t>(bytes.size(), 9) : bytes.size());
        switch (rng() % 5) {
          case 0: bytes[at] = static_cast<char>(rng()); break;
          case 1: bytes[at] = "0123456789[]{},:\" \\"[rng() % 19]; break;
          case 2: bytes.erase(at, rng() % 9); break;
          case 3: bytes.insert(at, bytes.substr(rng() % bytes.size(), rng() % 60)); break;
          default: bytes.insert(at, std::string(rng() % 400, "[{\"0,"[rng() % 5])); break;
        }
      }
    }
    const std::size_t before = held;
    most_held = before;
    std::size_t taken = 0;
    try {
      const SafetensorsFile file = parse(bytes);
      ++accepted;
      std::uint64_t data = 0;
      for (const SafetensorsTensor& t : file.tensors()) {
        data += t.bytes;
        EXPECT_EQ(file.data(t).size(), t.bytes);
      }
      EXPECT_LE(data, bytes.size());
      taken = most_held - before;
      for (const SafetensorsTensor& t : file.tensors())
        if (t.dtype && run % 16 < 2) {
          EXPECT_EQ(file.load(t.name, Device{}).bytes(), t.bytes);
        }
    } catch (const FormatError&) {
      taken = most_held - before;
    }
    // The bound covers twice the size of the header, a tree node and a tensor for each entry, and messages.
    if (taken > worst) worst = taken, worst_file = bytes;
    ASSERT_LE(taken, 8192 + 16 * bytes.size()) << bytes;
  }
  std::cout << accepted << " of " << cases << " files were valid; at most " << worst << " bytes for "
            << worst_file.size() << "\n";
  EXPECT_GT(accepted, static_cast<std::size_t>(cases) / 100);
  EXPECT_LT(accepted, static_cast<std::size_t>(cases) / 2);
}

TEST(Safetensors, MemoryForLargeHeadersIsProportionalToTheirLength) {
  const auto taken = [](const std::string& bytes) {
    const std::size_t before = held;
    most_held = before;
    try {
      parse(bytes);
    } catch (const FormatError&) {}
    return most_held - before;
  };
  const std::size_t n = 1 << 20;
  for (const std::string& header :
       {"{\"" + std::string(n, 'n') + "\":1}", R"({"a":{"shape":[)" + std::string(n, '['),
        "{" + std::string(n, ' ') + "}", R"({"__metadata__":{"a":")" + std::string(n, 'n') + "\"}}",
        "{\"" + std::string(n, '\xFF')}) {
    EXPECT_LE(taken(file_of(header, "")), 8192 + 16 * header.size()) << header.substr(0, 20);
  }
  std::string ones = R"({"a":{"shape":[1)", many = "{";
  while (ones.size() < n) ones += ",1";
  std::size_t count = 0;
  for (; many.size() < n; ++count)
    many += (count > 0 ? ",\"" : "\"") + std::to_string(count) +
            "\":" + tensor("[]", "[" + std::to_string(count) + "," + std::to_string(count + 1) + "]");
  const std::string sound = file_of(many + "}", std::string(count, 'x'));
  EXPECT_EQ(parse(sound).tensors().size(), count);
  EXPECT_LE(taken(file_of(ones, "")), 8192 + 16 * ones.size());
  EXPECT_LE(taken(sound), 8192 + 16 * many.size());
}

}  // namespace
}  // namespace tessera
