// SPDX-License-Identifier: Apache-2.0
// Packed values can be read back. For malformed bytes, Unpacker throws instead of reading out of bounds. Also tests
// build ids.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/os/library.h"
#include "tessera/base/packed.h"

namespace tessera {
namespace {

TEST(Packed, ValuesRoundTrip) {
  const std::string bytes =
      (Packer() << 1.5 << std::uint32_t{7} << true << std::string_view("a\0b", 3) << "" << std::uint64_t{1} << 60)
          .take();
  Unpacker in(bytes);
  EXPECT_EQ(in.take<double>(), 1.5);
  EXPECT_EQ(in.take<std::uint32_t>(), 7u);
  EXPECT_TRUE(in.take<bool>());
  EXPECT_EQ(in.text(), std::string_view("a\0b", 3));
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.take<std::uint64_t>(), 1u);
  EXPECT_THROW(in.end(), FormatError) << "bytes are left";
  EXPECT_EQ(in.take<int>(), 60);
  EXPECT_NO_THROW(in.end());
  EXPECT_THROW(in.take<std::uint8_t>(), FormatError) << "no bytes are left";
}

TEST(Packed, RejectsLengthsBeyondTheEndOfTheData) {
  for (const std::uint64_t length : {std::uint64_t{4}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const std::string bytes = (Packer() << length).take() + "abc";
    EXPECT_THROW(Unpacker(bytes).text(), FormatError) << length;
  }
}

TEST(BuildId, DiffersBetweenLibraries) {
  const std::string own = os::build_id(reinterpret_cast<const void*>(&os::build_id));
  const std::string mathematics =
      os::build_id(reinterpret_cast<const void*>(static_cast<double (*)(double)>(&std::cbrt)));
  EXPECT_GE(own.size(), 16u);
  EXPECT_EQ(own.find_first_not_of("0123456789abcdef"), own.npos) << own;
  EXPECT_EQ(own, os::build_id(reinterpret_cast<const void*>(&os::own_folder)));
  EXPECT_NE(own, mathematics);
  EXPECT_GE(mathematics.size(), 16u);
}

}  // namespace
}  // namespace tessera
