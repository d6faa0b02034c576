// SPDX-License-Identifier: Apache-2.0
// Tests buffers of small structs: the traced IR, results on devices compared with C++, and errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tessera/testing/testing.h"
#include "tests/support/errors.h"

using namespace tessera;
using test::holds;
using test::message;
namespace tt = tessera::testing;

namespace {

struct Particle {
  float x, y;
  float vx, vy;
  std::int32_t bounces;
  std::uint32_t id;
};
struct Wide {
  std::int64_t count;
  std::uint64_t bits;
  double mean;
  float last;  // followed by four bytes of padding
};
struct One {
  float value;
};

std::string here(int line) { return "kernel_struct_test.cpp:" + std::to_string(line); }

auto update = kernel("update_particles", [](Buffer<Particle> particles, Val<float> dt) {
  auto p = particles[global_id()];
  auto x = p[&Particle::x] + dt * p[&Particle::vx];
  p[&Particle::y] += dt * p[&Particle::vy];
  if_(
      abs(x) > 1,
      [&] {
        p[&Particle::vx] = -p[&Particle::vx];
        p[&Particle::bounces] += 1;
        p[&Particle::id] ^= 0x80000000u;
      },
      [&] { p[&Particle::x] = x; });
});

std::vector<Particle> some_particles(std::size_t n, tt::Random& random) {
  std::vector<Particle> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto number = [&] { return static_cast<float>(random.uniform(-1, 1)); };
    out[i] = {number(),
              number(),
              number(),
              number(),
              static_cast<std::int32_t>(random.integer(-9, 9)),
              static_cast<std::uint32_t>(i)};
  }
  return out;
}

TEST(KernelStructs, UpdatesStructsLikePlainCpp) {
  tt::for_each_device([](Device) {
    tt::Random random;
    int bounced = 0;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{4099}}) {
      auto expected = some_particles(n, random);
      DeviceBuffer<Particle> device(expected);
      EXPECT_EQ(device.size(), n);
      // The factor is a power of two, so the product is exact and contraction does not change the result.
      update.launch({n}, device, 0.5f);
      for (Particle& p : expected) {
        const float x = p.x + 0.5f * p.vx;
        p.y += 0.5f * p.vy;
        if (std::abs(x) > 1)
          p.vx = -p.vx, p.bounces += 1, p.id ^= 0x80000000u, ++bounced;
        else
          p.x = x;
      }
      const std::vector<Particle> got = device.to_vector();
      ASSERT_EQ(got.size(), n);
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(Particle)), 0) << "particle " << i << " of " << n;
    }
    EXPECT_GT(bounced, 0);
  });
}

TEST(KernelStructs, SizeReturnsTheNumberOfStructs) {
  tt::for_each_device([](Device) {
    auto sizes = kernel("sizes", [](Buffer<const Particle> a, Buffer<One> b, Buffer<int> out) {
      out[0] = cast<int>(a.size());
      out[1] = cast<int>(b.size());
    });
    const DeviceBuffer<Particle> a(7);
    DeviceBuffer<One> b(5);
    tt::Poisoned<int> out(2);
    sizes.launch({1}, a, b, out);
    out.expect(std::vector<int>{7, 5});
  });
}

TEST(KernelStructs, PreservesAllBitsOf8ByteFields) {
  auto integers = kernel("wide_integers", [](Buffer<const Wide> in, Buffer<Wide> out) {
    auto i = global_id();
    out[i][&Wide::count] = in[i][&Wide::count] - 1;
    out[i][&Wide::bits] = in[i][&Wide::bits] * 3;
    out[i][&Wide::last] = in[i][&Wide::last];
  });
  auto doubles = kernel("wide_doubles", [](Buffer<const Wide> in, Buffer<Wide> out) {
    auto i = global_id();
    out[i][&Wide::mean] = -in[i][&Wide::mean];
  });
  tt::for_each_device([&](Device device) {
    tt::Random random;
    std::vector<Wide> host(1000);
    for (Wide& w : host)
      w = {static_cast<std::int64_t>(random.bits()), random.bits(), random.normal(),
           static_cast<float>(random.normal())};
    host[0] = {std::numeric_limits<std::int64_t>::min(), ~std::uint64_t{0}, 5e-324, -0.0f};
    host[1] = {0, std::uint64_t{1} << 32, std::numeric_limits<double>::infinity(), 0};
    host[2] = {std::int64_t{1} << 32, 0xffffffffu, -0.0, 1};
    const DeviceBuffer<Wide> in(host);
    DeviceBuffer<Wide> out(host.size());
    out.fill(Wide{0x0b0b0b0b0b0b0b0b, 0x0b0b0b0b0b0b0b0b, -1e300, -1e30f});
    integers.launch({host.size()}, in, out);
    const bool has_double = device_info(device).can.f64;
    if (has_double) doubles.launch({host.size()}, in, out);
    const std::vector<Wide> got = out.to_vector();
    for (std::size_t i = 0; i < host.size(); ++i) {
      ASSERT_EQ(static_cast<std::uint64_t>(got[i].count), static_cast<std::uint64_t>(host[i].count) - 1) << i;
      ASSERT_EQ(got[i].bits, host[i].bits * 3) << i;
      ASSERT_EQ(got[i].last, host[i].last) << i;
      ASSERT_EQ(got[i].mean, has_double ? -host[i].mean : -1e300) << i;
    }
  });
}

TEST(KernelStructs, TracesFieldsAsWordsOfTheBuffer) {
  auto one = kernel("one_field", [](Buffer<const Particle> in, Buffer<Particle> out, Buffer<One> single) {
    auto i = global_id();
    out[i][&Particle::bounces] = in[i][&Particle::bounces] + 1;
    out[i][&Particle::x] = in[i][&Particle::vy];
    single[i][&One::value] = 1;
  });
  EXPECT_EQ(one.text(),
            "kernel one_field map\n"
            "  buffer arg0: u32 read\n"
            "  buffer arg1: u32 read_write\n"
            "  buffer arg2: u32 read_write\n"
            "  %1: index = mul global_id(0), 6:index\n"
            "  %2: index = add %1, 4:index\n"
            "  %3: u32 = load arg0[%2]\n"
            "  %4: i32 = bitcast %3\n"
            "  %5: i32 = add %4, 1:i32\n"
            "  %6: u32 = bitcast %5\n"
            "  store arg1[%2], %6\n"
            "  %7: index = add %1, 3:index\n"
            "  %8: u32 = load arg0[%7]\n"
            "  %9: f32 = bitcast %8\n"
            "  %10: u32 = bitcast %9\n"
            "  store arg1[%1], %10\n"
            "  store arg2[global_id(0)], 1065353216:u32\n");
  auto wide =
      kernel("wide_field", [](Buffer<const Wide> in, Buffer<Wide> out) { out[0][&Wide::mean] = -in[1][&Wide::mean]; });
  EXPECT_EQ(wide.text(),
            "kernel wide_field map\n"
            "  buffer arg0: u32 read\n"
            "  buffer arg1: u32 read_write\n"
            "  %1: u32x2 = load arg0[12:index]\n"
            "  %2: u32 = extract %1, 0\n"
            "  %3: u64 = cast %2\n"
            "  %4: u32 = extract %1, 1\n"
            "  %5: u64 = cast %4\n"
            "  %6: u64 = shl %5, 32:u64\n"
            "  %7: u64 = or %3, %6\n"
            "  %8: f64 = bitcast %7\n"
            "  %9: f64 = neg %8\n"
            "  %10: u64 = bitcast %9\n"
            "  %11: u32 = cast %10\n"
            "  %12: u64 = shr %10, 32:u64\n"
            "  %13: u32 = cast %12\n"
            "  %14: u32x2 = vector %11, %13\n"
            "  store arg1[4:index], %14\n");
  auto size = kernel("size", [](Buffer<const Particle> in, Buffer<int> out) { out[0] = cast<int>(in.size()); });
  EXPECT_EQ(size.text(),
            "kernel size map\n"
            "  buffer arg0: u32 read\n"
            "  buffer arg1: i32 read_write\n"
            "  %1: index = div arg0.size, 6:index\n"
            "  %2: i32 = cast %1\n"
            "  store arg1[0:index], %2\n");
}

TEST(KernelStructs, SupportsFieldsOfABaseClass) {
  struct Moving : One {};
  auto k = kernel("base", [](Buffer<Moving> m) { m[2][&Moving::value] = 1; });
  EXPECT_TRUE(holds(k.text(), "store arg0[2:index]")) << k.text();
}

TEST(KernelStructs, ErrorsContainTheLineOfTheField) {
  const int line = __LINE__ + 4;  // the line that accesses the field, not the one that declares the struct
  const std::string error = message([] {
    kernel("wrong", [](Buffer<Particle> p) {
      auto q = p[0];
      q[&Particle::id] = q[&Particle::id] + -1;
    });
  });
  EXPECT_TRUE(holds(error, "kernel wrong, " + here(line)));
  EXPECT_TRUE(holds(error, "the number -1 is combined with a value of u32"));

  struct __attribute__((packed, aligned(4))) Packed {
    std::uint16_t tag;
    float value;
    std::uint16_t more;
  };
  const std::string packed = message([] { kernel("packed", [](Buffer<Packed> p) { p[0][&Packed::value] = 1; }); });
  EXPECT_TRUE(holds(packed, "kernel packed, " + here(__LINE__ - 1)));
  EXPECT_TRUE(holds(packed, "the offset of this field in its struct is 2 bytes, which is not a multiple of 4"));
}

TEST(KernelStructs, RejectsLaunchesWithPartialStructs) {
  const DeviceScope scope({Backend::interp, 0});
  DeviceBuffer<std::uint32_t> words(std::vector<std::uint32_t>(13, 0));
  BufferView view = words.view();
  EXPECT_TRUE(
      holds(message([&] { update.launch({2}, view, 1.0f); }),
            "[launch update_particles] argument 1 (arg0) is a buffer of 52 bytes, which is not a whole number of "
            "structs of 24 bytes"));
  view.elements = 12;
  EXPECT_EQ(message([&] { update.launch({2}, view, 1.0f); }), "no error");
  const DeviceBuffer<float> floats(12);
  EXPECT_TRUE(holds(message([&] { update.launch({2}, floats.view(), 1.0f); }),
                    "[launch update_particles] argument 1 (arg0) is a buffer of 12 f32. This kernel takes"));
}

TEST(KernelStructs, UploadRejectsAWrongNumberOfStructs) {
  DeviceBuffer<Particle> buffer(3);
  EXPECT_EQ(buffer.view().dtype, DType::u32);
  EXPECT_EQ(buffer.view().elements, 18u);
  const std::string error = message([&] { buffer.upload(std::vector<Particle>(4)); });
  EXPECT_TRUE(holds(error, "the buffer and the host memory have different sizes"));
  EXPECT_TRUE(holds(error, "elements of the buffer = 3"));
  buffer.fill({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(buffer.to_vector()[2].id, 6u);
  EXPECT_TRUE(
      holds(message([] { DeviceBuffer<Particle> huge(std::uint64_t{1} << 46); }), "the size exceeds 2^48 words"));
}

}  // namespace
