// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/processor.h"
#include "tessera/base/os/pages.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <thread>

namespace tessera::os {
namespace {

cpu_set_t mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}
bool same(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b); }

// Runs `f` in a new thread, so that changes of the affinity mask do not affect other tests.
template <class F>
void in_a_thread(F&& f) {
  std::thread(f).join();
}

TEST(AvoidCore, MovesThreadAndRestoresMask) {
  in_a_thread([] {
    const cpu_set_t before = mask();
    const bool others = CPU_COUNT(&before) > 1;
    for (int i = 0; i < 20; ++i) {
      const int core = current_core();
      ASSERT_GE(core, 0);
      {
        const AvoidCore off(core);
        EXPECT_EQ(current_core() != core, others);
        const cpu_set_t now = mask();
        EXPECT_EQ(!CPU_ISSET(core, &now), others);
        EXPECT_EQ(CPU_COUNT(&now), CPU_COUNT(&before) - (others ? 1 : 0));
      }
      EXPECT_TRUE(same(mask(), before));
    }
  });
}

TEST(AvoidCore, DoesNothingIfOnlyOneCoreIsAllowed) {
  in_a_thread([] {
    const int core = current_core();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const AvoidCore off(core), none(-1), unknown(1 << 20);
    EXPECT_EQ(current_core(), core);
    EXPECT_TRUE(same(mask(), one));
  });
}

TEST(AvoidCore, KeepsMaskThatWasChangedInTheMeantime) {
  in_a_thread([] {
    const int core = current_core();
    cpu_set_t asked;
    CPU_ZERO(&asked);
    CPU_SET(core, &asked);
    {
      const AvoidCore off(core);
      ASSERT_EQ(sched_setaffinity(0, sizeof asked, &asked), 0);
    }
    EXPECT_TRUE(same(mask(), asked));
  });
}

TEST(Pages, AreAlignedZeroedAndReturned) {
  for (const std::size_t alignment : {std::size_t{64}, std::size_t{4096}, std::size_t{2} << 20})
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, (std::size_t{3} << 20) + 5}) {
      auto* const data = static_cast<unsigned char*>(map_pages(bytes, alignment));
      ASSERT_NE(data, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0u);
      EXPECT_EQ(data[0] + data[bytes - 1], 0);
      data[0] = data[bytes - 1] = 1;
      unmap_pages(data, bytes);
      EXPECT_NE(::msync(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) / 4096 * 4096), 4096, MS_ASYNC),
                0)
          << "the pages are still mapped";
    }
  EXPECT_EQ(map_pages(SIZE_MAX - 5000, 64), nullptr);
}

}  // namespace
}  // namespace tessera::os
