// SPDX-License-Identifier: Apache-2.0
// Callback, Mutex and Owner, which replace long standard headers in public headers.
#include "tessera/base/callback.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/mutex.h"
#include "tessera/base/owner.h"

namespace tessera {
namespace {

int twice(int a) { return 2 * a; }
struct Number {
  int value = 4;
  int plus(int a) const { return value + a; }
};
int call(const Callback<int(int)>& f) { return f ? f(3) : -1; }

TEST(Callback, CallsFunctionsLambdasAndMembers) {
  EXPECT_EQ(call(twice), 6);
  EXPECT_EQ(call([](int a) { return a + 1; }), 4);
  EXPECT_EQ(call(std::function<int(int)>(twice)), 6);
  const Callback<int(const Number&, int)> member = &Number::plus;
  EXPECT_EQ(member(Number{}, 2), 6);
  int calls = 0;
  const Callback<void()> count = [&calls] { return ++calls; };
  count();
  EXPECT_EQ(calls, 1);
}

TEST(Callback, IsEmptyForNullPointersAndEmptyFunctions) {
  int (*const null)(int) = nullptr;
  EXPECT_EQ(call(nullptr), -1);
  EXPECT_EQ(call(null), -1);
  EXPECT_EQ(call({}), -1);
  EXPECT_EQ(call(std::function<int(int)>()), -1);
  EXPECT_TRUE(Callback<void()>() == nullptr);
  EXPECT_THROW(Callback<void()>()(), std::bad_function_call);
}

TEST(Callback, CopiesAndMovesObjectsOfAnySize) {
  const std::string text(100, 'x');
  Callback<std::size_t()> size = [text] { return text.size(); };
  Callback<std::size_t()> copy = size, moved = std::move(size);
  EXPECT_FALSE(size);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(copy(), 100u);
  EXPECT_EQ(moved(), 100u);
  copy = [] { return std::size_t{1}; };
  moved = copy;
  EXPECT_EQ(moved(), 1u);
  moved = nullptr;
  EXPECT_FALSE(moved);
  const std::function<std::size_t()> back = copy;
  EXPECT_EQ(back(), 1u);
}

TEST(Callback, PassesAndReturnsMoveOnlyValuesAndReferences) {
  const Callback<std::unique_ptr<int>(std::unique_ptr<int>)> same = [](std::unique_ptr<int> p) { return p; };
  EXPECT_EQ(*same(std::make_unique<int>(3)), 3);
  int number = 0;
  const Callback<int&()> reference = [&]() -> int& { return number; };
  reference() = 5;
  EXPECT_EQ(number, 5);
}

TEST(Mutex, ExcludesThreads) {
  detail::Mutex mutex;
  std::uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50'000; ++i) {
        const detail::LockGuard hold(mutex);
        ++count;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(count, 200'000u);
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
}

TEST(Owner, DestroysItsObjectOnce) {
  struct Counted {
    int& destroyed;
    explicit Counted(int& d) : destroyed(d) {}
    ~Counted() { ++destroyed; }
  };
  int destroyed = 0;
  {
    detail::Owner<Counted> a(new Counted(destroyed)), b = std::make_unique<Counted>(destroyed);
    EXPECT_TRUE(a && b);
    a = std::move(b);
    EXPECT_EQ(destroyed, 1);
    EXPECT_TRUE(b == nullptr);  // NOLINT(bugprone-use-after-move)
    detail::Owner<Counted> c = std::move(a);
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(c);
  }
  EXPECT_EQ(destroyed, 2);
}

}  // namespace
   // sanitizer runtimes define these operators themselves
}  // namespace tessera
