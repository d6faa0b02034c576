// SPDX-License-Identifier: Apache-2.0
// usage: render_templates < REQUESTS
//
// Renders templates for tools/check_chat_templates.py. Each line of standard input is a JSON object with `template` (a
// text) and `names` (an object). Each line of output has `text` or `error`. The clock is fixed at 2026-07-04 12:34:56.
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/jinja/template.h"

int main() {
  using nlohmann::ordered_json;
  using namespace tessera::jinja;
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 6, now.tm_mday = 4, now.tm_hour = 12, now.tm_min = 34, now.tm_sec = 56;
  now.tm_wday = 6, now.tm_yday = 184;
  for (std::string line; std::getline(std::cin, line);) {
    const ordered_json request = ordered_json::parse(line);
    ordered_json answer;
    try {
      const Template t(request["template"].get<std::string>());
      const Value names = value_of_json(request["names"].dump(), Origin::data);
      answer["text"] = t.render(*names.dict(), {.now = now}).bytes;
    } catch (const std::exception& e) {
      answer["error"] = e.what();
    }
    std::printf("%s\n", answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  }
}
