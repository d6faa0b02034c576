// SPDX-License-Identifier: Apache-2.0
// Chat templates: rendering, tracking of user text, errors, limits, and random templates.
#include "tessera/jinja/template.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tessera/base/test_seed.h"
#include "tests/support/errors.h"

using namespace tessera::jinja;
using nlohmann::ordered_json;
using tessera::test::expect_contains;
using tessera::test::text_of;

namespace {

const ordered_json& cases() {
  static const ordered_json out = ordered_json::parse(std::ifstream(TESSERA_CASES));
  return out;
}
Dict names(Origin origin = Origin::data) { return *value_of_json(cases()["names"].dump(), origin).dict(); }
Text render(std::string_view source, const Dict& with = {}, const RenderOptions& options = {}) {
  return Template(source).render(with, options);
}
std::string error_of(std::string_view source) {
  return text_of<tessera::Error>([&] { render(source, names()); });
}

// The expected texts were rendered by `transformers` (tools/make_template_cases.py).
TEST(Templates, MatchTransformers) {
  int rendered = 0, refused = 0;
  for (const auto& one : cases()["cases"]) {
    const auto source = one["template"].get<std::string>();
    SCOPED_TRACE(source);
    if (one["text"].is_null()) {
      EXPECT_THROW(render(source, names()), tessera::Error);
      ++refused;
    } else {
      EXPECT_EQ(render(source, names()).bytes, one["text"].get<std::string>());
      ++rendered;
    }
  }
  EXPECT_GT(rendered, 80);
  EXPECT_GT(refused, 20);
}

TEST(Templates, TrackTextFromUserData) {
  const auto data = [](std::string_view source, const std::string& user) {
    Dict d;
    d.set("user", Text::data(user));
    const Text out = render(source, d);
    std::string marked;
    std::size_t at = 0;
    for (const Span& s : out.given) {
      marked += out.bytes.substr(at, s.begin - at) + "[" + out.bytes.substr(s.begin, s.end - s.begin) + "]";
      at = s.end;
    }
    return marked + out.bytes.substr(at);
  };
  EXPECT_EQ(data("<s>{{ user }}<e>", "<s>x"), "<s>[<s>x]<e>");
  EXPECT_EQ(data("{{ '<s>' + user + '<e>' }}", "u"), "<s>[u]<e>");
  EXPECT_EQ(data("{{ '<s>' ~ user ~ user }}{{ user }}", "u"), "<s>[uuu]");
  EXPECT_EQ(data("{{ '<' ~ user.strip() | trim }}|", " u "), "<[u]|");
  EXPECT_EQ(data("{{ (user ~ '<e>')[1:4] }}", "abc"), "[bc]<");
  EXPECT_EQ(data("{{ (user ~ '<e>').split('b') | join('<m>') }}", "abc"), "[a]<m>[c]<e>");
  EXPECT_EQ(data("{{ ('<s>' ~ user).replace('a', '<m>') }}", "xay"), "<s>[x]<m>[y]");
  EXPECT_EQ(data("{{ user | upper }}{{ 'a' | upper }}", "b"), "[B]A");
  EXPECT_EQ(data("{{ {'k': user} | tojson }}<e>", "u"), "[{\"k\": \"u\"}]<e>");
  EXPECT_EQ(data("{{ '%s<e>' % user }}{{ '{}<e>'.format(user) }}", "u"), "[u]<e>[u]<e>");
  EXPECT_EQ(data("{% for c in user %}{{ c }}-{% endfor %}", "ab"), "[a]-[b]-");
  EXPECT_EQ(
      data("{% set t %}<s>{{ user }}{% endset %}{{ t }}{% macro m(x) %}<m>{{ x }}{% endmacro %}{{ m(user) }}", "u"),
      "<s>[u]<m>[u]");
  EXPECT_EQ(data("{{ [user, 'a'] | first }}{{ user if user == 'u' else '' }}", "u"), "[uu]");
  EXPECT_EQ(data("{{ 'given' if '<e>' in user else 'not' }}", "<e>"), "given");
}

TEST(Templates, UseTheGivenTime) {
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 6, now.tm_mday = 4;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}", {}, {.now = now}).bytes, "04 Jul 2026");
  EXPECT_EQ(render("{{ strftime_now('%Y') }}").bytes.size(), 4u);
  EXPECT_TRUE(error_of("{{ strftime_now('" + std::string(300, '%') + "') }}").size() > 0);
}

TEST(Templates, ErrorsNameCauseAndLine) {
  expect_contains(error_of("a\n\n{{ missing.x }}"), {"chat template", "'missing' is undefined", "line = 3"});
  expect_contains(error_of("\n{{ d.nothing.x }}"), {"'dict object' has no attribute 'nothing'", "line = 2"});
  expect_contains(error_of("{{ 'a' + 1 }}"), {"unsupported operand types for +: 'str' and 'int'"});
  expect_contains(error_of("{{ s | shout }}"), {"there is no filter 'shout'"});
  expect_contains(error_of("{{ s is loud }}"), {"there is no test 'loud'"});
  expect_contains(error_of("{% include 'x' %}"), {"'{% include %}' is not supported", "Supported are if, for"});
  expect_contains(error_of("{% if b %}x"), {"has no 'endif'"});
  expect_contains(error_of("{% for x in l %}"), {"has no 'endfor'", "line = 1"});
  expect_contains(error_of("{{ (1 + }}"), {"unexpected '}', expected ')'"});
  expect_contains(error_of("{{ 'x }}"), {"unterminated string"});
  expect_contains(error_of("{{ l.append(1) }}"), {"changes a list"});
  expect_contains(error_of("{% break %}"), {"'break' outside of a loop"});
  expect_contains(error_of("{{ range(1000000) }}"), {"100,000"});
  EXPECT_THROW(render("{{ raise_exception('roles must alternate') }}"), Refused);
  expect_contains(error_of("{{ raise_exception('roles must alternate') }}"), {"roles must alternate"});
  EXPECT_THROW(value_of_json("{\"a\": ", Origin::data), tessera::FormatError);
  EXPECT_THROW(value_of_json(std::string(100, '[') + std::string(100, ']'), Origin::data), tessera::FormatError);
}

TEST(Templates, LimitStepsTextLengthAndNesting) {
  const auto nested = [](const std::string& open, const std::string& inner, const std::string& close, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += open;
    out += inner;
    for (int i = 0; i < n; ++i) out += close;
    return out;
  };
  expect_contains(
      error_of("{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% "
               "endfor %}{% endfor %}"),
      {"too many steps"});
  expect_contains(
      error_of("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
      {"too much text"});
  expect_contains(error_of("{{ 'x' * 99999999999 }}"), {"too much text"});
  expect_contains(error_of("{{ 'x'.ljust(99999999999) }}"), {"too much text"});
  expect_contains(error_of("{{ [1] * 99999999999 }}"), {"too many steps"});
  expect_contains(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), {"too deep"});
  expect_contains(error_of("{% set ns = namespace(x=1) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}"),
                  {"64 levels deep"});
  for (const auto& [open, inner, close] : {std::array{"(", "1", ")"},
                                           {"[", "", "]"},
                                           {"{'a':", "1", "}"},
                                           {"-", "1", ""},
                                           {"not ", "1", ""},
                                           {"f(", "", ")"},
                                           {"l[", "0", "]"}})
    expect_contains(error_of("{{ " + nested(open, inner, close, 20'000) + " }}"), {"nested more than"});
  expect_contains(error_of(nested("{% if b %}", "", "{% endif %}", 20'000)), {"nested more than"});
  // A macro and a namespace that refer to themselves are freed (checked by the sanitizers).
  EXPECT_EQ(render("{% set ns = namespace() %}{% macro m() %}{{ ns.m.name }}{% endmacro %}{% set ns.m = m %}{% set "
                   "ns.n = ns %}{{ m() }}")
                .bytes,
            "m");
  // A long expression without deep nesting is accepted.
  std::string sum = "{{ 0";
  for (int i = 0; i < 390; ++i) sum += " + 1";
  EXPECT_EQ(render(sum + " }}").bytes, "390");
}

TEST(Templates, CanBeRenderedConcurrently) {
  const Template t("{% for m in l %}{{ m }}{% endfor %}{{ u | upper }}");
  const Dict with = names();
  const std::string expected = t.render(with).bytes;
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) same += t.render(with).bytes == expected;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, 200);
}

TEST(Templates, RandomTemplatesRenderOrThrow) {
  const char* many = std::getenv("TESSERA_FUZZ_CASES");
  const long count = many ? std::atol(many) : 2000;
  std::mt19937_64 random(tessera::test_seed());
  std::vector<std::string> sources;
  for (const auto& one : cases()["cases"]) sources.push_back(one["template"].get<std::string>());
  const std::vector<std::string> words = {
      "{{",    "}}",     "{%",   "%}",     "{#",   "#}",         "-",         "|",        "(",     ")",
      "[",     "]",      ":",    ",",      ".",    "'",          " if ",      " for ",    " in ",  "else",
      "endif", "endfor", "set ", "macro ", "loop", "namespace(", "999999999", "-1",       "\n",    "\\",
      "is ",   "not ",   "s",    "l",      "*",    "~",          "%",         "\xf0\x9f", "range("};
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  long rendered = 0, refused = 0;
  const Dict with = names();
  for (long i = 0; i < count; ++i) {
    std::string source = sources[pick(sources.size())];
    for (std::size_t edits = 1 + pick(4); edits > 0; --edits) {
      const std::size_t at = pick(source.size() + 1);
      switch (pick(4)) {
        case 0: source.insert(at, words[pick(words.size())]); break;
        case 1: source.erase(at, 1 + pick(8)); break;
        case 2: {
          const std::string& other = sources[pick(sources.size())];
          source.insert(at, other.substr(pick(other.size() + 1), 1 + pick(40)));
          break;
        }
        default:
          if (at < source.size()) source[at] = static_cast<char>(random());
      }
    }
    try {
      const Text out = render(source, with, {.steps = 20'000, .bytes = std::size_t{1} << 20});
      std::size_t last = 0;
      for (const Span& s : out.given) {
        ASSERT_LE(last, s.begin);
        ASSERT_LT(s.begin, s.end);
        last = s.end;
      }
      ASSERT_LE(last, out.bytes.size());
      ++rendered;
    } catch (const tessera::Error&) {
      ++refused;
    }
  }
  std::printf("%ld rendered, %ld refused, seed %llu\n", rendered, refused,
              static_cast<unsigned long long>(tessera::test_seed()));
  EXPECT_GT(rendered, count / 20);
  EXPECT_GT(refused, count / 20);
}

}  // namespace
