// SPDX-License-Identifier: Apache-2.0
#include "tessera/jinja/template.h"

#include <nlohmann/json.hpp>

#include "tessera/jinja/filter_bodies.h"

namespace tessera::jinja {
namespace {

using nlohmann::ordered_json;

Value value_of(const ordered_json& j, Origin origin, int depth) {
  if (depth > Value::max_depth)
    fail<FormatError>({.operation = "JSON", .wrong = "lists and objects are nested more than 64 levels deep"});
  const auto text = [&](const std::string& s) { return origin == Origin::data ? Text::data(s) : Text(s); };
  switch (j.type()) {
    case ordered_json::value_t::boolean: return j.get<bool>();
    case ordered_json::value_t::number_integer: return j.get<std::int64_t>();
    case ordered_json::value_t::number_unsigned:
      if (j.get<std::uint64_t>() > INT64_MAX) return static_cast<double>(j.get<std::uint64_t>());
      return j.get<std::int64_t>();
    case ordered_json::value_t::number_float: return j.get<double>();
    case ordered_json::value_t::string: return text(j.get_ref<const std::string&>());
    case ordered_json::value_t::array: {
      std::vector<Value> out;
      for (const auto& one : j) out.push_back(value_of(one, origin, depth + 1));
      return Value::list(std::move(out));
    }
    case ordered_json::value_t::object: {
      Dict out;
      for (const auto& [key, value] : j.items()) out.set(text(key), value_of(value, origin, depth + 1));
      return out;
    }
    default: return None{};
  }
}

/// Estimates how many steps it takes to traverse a value.
std::size_t size_of(const Value& v) {
  std::size_t n = 16;
  if (const Text* t = v.text()) n += t->bytes.size();
  if (const List* l = v.items())
    for (const Value& one : l->items) n += size_of(one);
  if (const Dict* d = v.dict())
    for (const auto& [key, value] : d->entries()) n += size_of(key) + size_of(value);
  return n;
}

}  // namespace

Value value_of_json(std::string_view json, Origin origin) {
  const ordered_json j = ordered_json::parse(json, nullptr, false);
  if (j.is_discarded()) fail<FormatError>({.operation = "JSON", .wrong = "the text is not valid JSON"});
  try {
    return value_of(j, origin, 0);
  } catch (const Fault& f) {
    fail<FormatError>({.operation = "JSON", .wrong = f.what()});
  }
}

struct Template::Tree {
  Body body;
};

Template::Template(std::string_view source) : tree_(std::make_unique<Tree>(Tree{parse(tokens_of(source))})) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Text Template::render(const Dict& names, const RenderOptions& options) const {
  std::size_t size = 0;
  for (const auto& [name, value] : names.entries()) size += size_of(value);
  Interpreter in(options.steps + 8 * size, options.bytes + 64 * size);
  const auto functions = std::make_shared<Scope>(), scope = std::make_shared<Scope>();
  add_functions(functions->names);
  functions->names["raise_exception"] = function("raise_exception", [](Interpreter&, const Arguments& a) -> Value {
    a.check("raise_exception", {"message"});
    fail<Refused>({.operation = "chat template", .wrong = to_text(a.get(0, "message")).bytes});
  });
  functions->names["strftime_now"] = function("strftime_now", [&options](Interpreter&, const Arguments& a) -> Value {
    a.check("strftime_now", {"format"});
    const Text form = text_of(a.get(0, "format"), "strftime_now");
    if (form.bytes.size() > 200) fault("strftime_now: the format has more than 200 bytes");
    std::tm now{};
    if (options.now) {
      now = *options.now;
    } else {
      const std::time_t t = std::time(nullptr);
      ::localtime_r(&t, &now);
    }
    char text[4096];
    return Text(std::string(text, std::strftime(text, sizeof text, form.bytes.c_str(), &now)));
  });
  scope->outer = functions;
  for (const auto& [name, value] : names.entries()) scope->names[to_text(name).bytes] = value;
  Text out;
  try {
    in.run(tree_->body, scope, out);
  } catch (const Fault& f) {
    syntax_error(in.line(), f.what());
  }
  return out;
}

}  // namespace tessera::jinja
