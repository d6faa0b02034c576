// SPDX-License-Identifier: Apache-2.0
// Checks that C++ code in docs/ and in examples in headers is the same as in a test that compiles and runs it.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::test {

class DocsPage {
 public:
  /// `page` is relative to the root of the source tree, which is the working directory of tests.
  explicit DocsPage(const std::string& page) : path_(page), text_(read(page)) {}
  const std::string& text() const { return text_; }

  std::vector<std::string> blocks(const std::string& language) const {
    std::vector<std::string> out;
    for (std::size_t at = 0; (at = text_.find("```" + language + "\n", at)) != text_.npos;) {
      const std::size_t begin = at + 4 + language.size(), end = text_.find("```", begin);
      out.push_back(text_.substr(begin, end - begin));
      at = end + 3;
    }
    return out;
  }
  /// Checks that the page has at least `least` C++ blocks and that the test file contains all of them. Ignores
  /// indentation and empty lines.
  void expect_blocks_in(const std::string& test, std::size_t least, const std::string& language = "cpp") const {
    const std::string file = stripped(read(test));
    const auto all = blocks(language);
    EXPECT_GE(all.size(), least);
    for (const std::string& block : all)
      EXPECT_NE(file.find(stripped(block)), file.npos) << test << " does not contain this block:\n" << block;
  }
  void expect(const std::string& text) const {
    EXPECT_NE(text_.find(text), text_.npos) << path_ << " does not show this:\n" << text;
  }
  /// Checks that the page contains the message of the error thrown by `f`. Ignores the list of the latest work in the
  /// queue, because it varies.
  template <class F>
  void expect_error(F f) const {
    try {
      f();
    } catch (const Error& e) {
      const std::string said = e.what();
      expect(said.substr(0, said.find(" Latest work in this queue")));
      return;
    }
    ADD_FAILURE() << "no error";
  }

 private:
  friend void expect_examples_of_header(const std::string&, const std::string&);
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static std::string stripped(const std::string& text) {
    std::istringstream lines(text);
    std::string out, line;
    while (std::getline(lines, line)) {
      const std::size_t first = line.find_first_not_of(' ');
      if (first != line.npos) out += line.substr(first) + "\n";
    }
    return out;
  }
  std::string path_, text_;
};

/// Checks that the test file contains the examples in a header's comments. Examples are lines that are indented by
/// three spaces.
inline void expect_examples_of_header(const std::string& header, const std::string& test) {
  const std::string file = DocsPage::stripped(DocsPage::read(test));
  std::istringstream lines(DocsPage::read(header));
  std::string example;
  for (std::string line; std::getline(lines, line) || !example.empty();) {
    std::size_t at = line.find_first_not_of(' ');
    at = at != line.npos && line.compare(at, 2, "//") == 0 ? line.find_first_not_of('/', at) : line.npos;
    if (lines && at != line.npos && line.compare(at, 3, "   ") == 0) {
      example += line.substr(at) + "\n";
      continue;
    }
    EXPECT_NE(file.find(DocsPage::stripped(example)), file.npos)
        << test << " does not contain this example of " << header << ":\n"
        << example;
    example.clear();
    if (!lines) break;
  }
}

}  // namespace tessera::test
