// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/parameter.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/nn/seed.h"

namespace tessera {

const std::string& ModelArray::path() const {
  static const std::string& none = *new std::string();
  return path_ ? *path_ : none;
}

void ModelArray::declare(Shape shape, Initialiser initialise) {
  if (!empty() && this->shape() != shape)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"values", to_string(this->shape())}, {"the layer's", to_string(shape)}},
                      .wrong = "the shape of an array's values differs from the shape that its layer declares"});
  declared_ = std::make_shared<const Declared>(Declared{std::move(shape), std::move(initialise)});
}

void ModelArray::fill_in(std::string path, std::uint64_t seed, DType dtype) {
  path_ = std::make_shared<const std::string>(std::move(path));
  if (!empty() || !declared_) return;
  check_shape("setup", declared_->shape);
  Array values = declared_->initialise(declared_->shape, detail::seed_of(seed, *path_));
  if (values.shape() != declared_->shape)
    fail<ShapeError>(
        {.operation = "setup",
         .with = {{"path", *path_}, {"shape", to_string(declared_->shape)}, {"made", to_string(values.shape())}},
         .wrong = "an initialiser returned an array with a different shape"});
  assign_values(values.astype(dtype).eval());
}

bool path_matches(std::string_view path, std::string_view pattern) {
  // After a mismatch, continues from the last star, which then matches one more character.
  std::size_t p = 0, q = 0, star = pattern.npos, taken = 0;
  while (p < path.size()) {
    if (q < pattern.size() && pattern[q] == '*') {
      star = q++, taken = p;
    } else if (q < pattern.size() && (pattern[q] == '?' || pattern[q] == path[p])) {
      ++p, ++q;
    } else if (star != pattern.npos) {
      q = star + 1, p = ++taken;
    } else {
      return false;
    }
  }
  while (q < pattern.size() && pattern[q] == '*') ++q;
  return q == pattern.size();
}

namespace detail {

void set_frozen(const char* operation, const Parts& parts, std::string_view pattern, bool frozen) {
  std::size_t matching = 0;
  for (const auto& [path, part] : parts)
    if (!part->state() && path_matches(path, pattern)) part->set_frozen(frozen), ++matching;
  if (matching == 0)
    fail<ArgumentError>({.operation = operation,
                         .with = {{"pattern", std::string(pattern)}},
                         .wrong = "no parameter of this model has a matching path",
                         .remedy = "summary(model) lists the paths"});
}

std::vector<NamedArray> named_arrays(const ConstParts& parts, bool states) {
  std::vector<NamedArray> out;
  for (const auto& [path, part] : parts)
    if (part->state() == states && !part->empty()) out.push_back({path, *part});
  return out;
}

std::string summary_of(const ConstParts& parts) {
  struct Row {
    std::string path, kind, dtype, shape, count;
  };
  std::vector<Row> rows = {{"path", "kind", "dtype", "shape", "elements"}};
  static constexpr const char* kinds[] = {"parameter", "frozen", "state"};
  struct Seen {
    const std::string* path;
    std::int64_t size;
    std::size_t kind;  // counted as trained if any of its occurrences is trained
  };
  ArrayMap<std::size_t> known;
  std::vector<Seen> seen;
  for (const auto& [path, part] : parts) {
    if (part->empty()) continue;
    const std::size_t kind = part->state() ? 2 : part->frozen() ? 1 : 0;
    std::size_t* before = known.find(*part);
    if (before) seen[*before].kind = std::min(seen[*before].kind, kind);
    if (!before) known.add(*part, seen.size()), seen.push_back({&path, part->size(), kind});
    rows.push_back({path, kinds[kind], std::string(dtype_name(part->dtype())), to_string(part->shape()),
                    before ? "as " + *seen[*before].path : std::to_string(part->size())});
  }
  std::int64_t sums[3] = {};
  for (const Seen& s : seen) sums[s.kind] += s.size;
  std::size_t width[4] = {};
  for (const Row& r : rows) {
    const std::string* columns[] = {&r.path, &r.kind, &r.dtype, &r.shape};
    for (std::size_t i = 0; i < 4; ++i) width[i] = std::max(width[i], columns[i]->size());
  }
  std::string out;
  for (const Row& r : rows)
    out += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:<{}}  {:>12}\n", r.path, width[0], r.kind, width[1], r.dtype,
                       width[2], r.shape, width[3], r.count);
  out += fmt::format("{} elements are trained, {} frozen, {} state\n", sums[0], sums[1], sums[2]);
  return out;
}

Array Cloner::operator()(const Array& a) {
  if (a.size() == 0) return a;
  const Array* copy = known_.find(a);
  return copy ? *copy : known_.add(a, a.copy().eval());
}

}  // namespace detail

}  // namespace tessera
