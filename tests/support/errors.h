// SPDX-License-Identifier: Apache-2.0
// Checks that code throws an error of a given type, with given parts in its message.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera::test {

/// Returns the message of the error that `f` throws. The test fails unless it is of type E.
template <class E, class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "unexpected error: " << e.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Returns the message of the tessera::Error that `f` throws; "no error" if it does not throw.
template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

inline ::testing::AssertionResult holds(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
}
template <class Parts = std::initializer_list<std::string_view>>
void expect_contains(const std::string& text, const Parts& parts) {
  for (std::string_view part : parts) EXPECT_TRUE(holds(text, part));
}

/// Checks that `f` throws an E with a message that contains all `parts`.
template <class E, class F, class Parts = std::initializer_list<std::string_view>>
void expect_throw(F&& f, const Parts& parts) {
  expect_contains(text_of<E>(f), parts);
}

}  // namespace tessera::test
