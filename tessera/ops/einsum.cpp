// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/einsum.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "tessera/array/operation.h"
#include "tessera/array/rearrange.h"
#include "tessera/ops/product.h"

namespace tessera {

using detail::Operation;

namespace {

/// An operand of an einsum, with a label for each axis. Axes of "..." have the labels '0' to '9', counted from the last
/// one, so that they are broadcast as in NumPy.
struct Term {
  Array array;
  std::string labels;
};

constexpr std::string_view dots = "...";

[[noreturn]] void reject(std::string_view subscripts, const std::string& why, const std::string& remedy = "") {
  fail<ArgumentError>({.operation = "einsum",
                       .with = {{"subscripts", "\"" + std::string(subscripts) + "\""}},
                       .wrong = why,
                       .remedy = remedy});
}

bool has(std::string_view labels, char label) { return labels.find(label) != std::string_view::npos; }

/// Replaces "..." by `count` labels.
std::string expand(std::string_view subscripts, const std::string& part, std::size_t count) {
  std::string axes;
  for (std::size_t i = count; i > 0; --i) axes += static_cast<char>('0' + i - 1);
  const std::size_t at = part.find(dots);
  std::string out = part;
  if (at != std::string::npos) out.replace(at, dots.size(), axes);
  for (const char c : part.substr(0, at) + (at == std::string::npos ? "" : part.substr(at + dots.size())))
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
      reject(subscripts, std::string("'") + c + "' is not a letter",
             "Name each axis with one letter, and others with ...");
  return out;
}

/// Takes the diagonal of axes with the same label.
Term without_repeated(Term term) {
  for (std::size_t i = 0; i < term.labels.size(); ++i)
    for (std::size_t j; (j = term.labels.find(term.labels[i], i + 1)) != std::string::npos;) {
      const auto [first, second] = std::pair(static_cast<int>(i), static_cast<int>(j));
      if (term.array.shape(first) != term.array.shape(second))
        fail<ShapeError>({.operation = "einsum",
                          .with = {{"label", std::string(1, term.labels[i])}, {"shape", to_string(term.array.shape())}},
                          .wrong = "axes of the same label have different extents"});
      // The diagonal is the last axis of the result; it replaces axis i.
      const Array last = moveaxis(moveaxis(term.array, second, -1), first, -2);
      term.array = moveaxis(diag(last), -1, first);
      term.labels.erase(j, 1);
    }
  return term;
}

/// Sums over axes whose labels are not in `kept`.
Term summed(Term term, std::string_view kept) {
  std::vector<int> axes;
  std::string labels;
  for (std::size_t d = 0; d < term.labels.size(); ++d)
    if (has(kept, term.labels[d]))
      labels += term.labels[d];
    else
      axes.push_back(static_cast<int>(d));
  if (axes.empty()) return term;
  const DType dtype = term.array.dtype();
  return {sum(std::move(term.array), axes).astype(dtype), labels};
}

/// Arranges the axes in the order of `labels`. Labels that the term does not have become axes of extent 1.
Array arranged(const Term& term, std::string_view labels) {
  std::vector<int> order;
  for (const char c : labels)
    if (has(term.labels, c)) order.push_back(static_cast<int>(term.labels.find(c)));
  Array out = term.array.permute(order);
  for (std::size_t d = 0; d < labels.size(); ++d)
    if (!has(term.labels, labels[d])) out = out.unsqueeze(static_cast<int>(d));
  return out;
}

std::int64_t product_of(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1}, std::multiplies<>());
}

/// The product of two arrays; the logical and of bools.
Array times(const Array& a, const Array& b) {
  return a.dtype() == DType::boolean && b.dtype() == DType::boolean ? a & b : a * b;
}

/// Multiplies two terms, and sums over labels that are not in `kept`.
Term contracted(Term a, Term b, std::string_view kept) {
  a = summed(std::move(a), std::string(kept) + b.labels), b = summed(std::move(b), std::string(kept) + a.labels);
  const DType dtype = promote(a.array.dtype(), b.array.dtype());
  // Axes of both terms that stay, of both that are summed over, and of one term. Axes of extent 1 are broadcast.
  std::string batch, inner, of_a, of_b;
  for (const char c : a.labels) (!has(b.labels, c) ? of_a : has(kept, c) ? batch : inner) += c;
  for (const char c : b.labels)
    if (!has(a.labels, c)) of_b += c;
  Term out{{}, batch + of_a + of_b};
  if (inner.empty()) {
    out.array = times(arranged(a, out.labels), arranged(b, out.labels)).astype(dtype);
    return out;
  }
  Array left = arranged(a, batch + of_a + inner), right = arranged(b, batch + inner + of_b);
  const std::size_t n = batch.size();
  Shape batches, inners;
  const auto common = [&](std::size_t at_left, std::size_t at_right) {
    return std::max(left.shape()[at_left], right.shape()[at_right]) *
           std::min<std::int64_t>(1, std::min(left.shape()[at_left], right.shape()[at_right]));
  };
  for (std::size_t d = 0; d < n; ++d) batches.push_back(common(d, d));
  for (std::size_t d = 0; d < inner.size(); ++d) inners.push_back(common(n + of_a.size() + d, n + d));
  Shape left_shape = batches, right_shape = batches, shape = batches;
  for (std::size_t d = 0; d < of_a.size(); ++d) left_shape.push_back(left.shape()[n + d]);
  for (const std::int64_t extent : inners) left_shape.push_back(extent), right_shape.push_back(extent);
  for (std::size_t d = 0; d < of_b.size(); ++d) right_shape.push_back(right.shape()[n + inner.size() + d]);
  left = left.broadcast_to(left_shape), right = right.broadcast_to(right_shape);
  shape.insert(shape.end(), left_shape.begin() + static_cast<std::ptrdiff_t>(n),
               left_shape.begin() + static_cast<std::ptrdiff_t>(n + of_a.size()));
  shape.insert(shape.end(), right_shape.begin() + static_cast<std::ptrdiff_t>(n + inner.size()), right_shape.end());
  const std::int64_t rows = product_of(left_shape, n, n + of_a.size());
  const std::int64_t depth = product_of(inners, 0, inners.size());
  const std::int64_t columns = product_of(right_shape, n + inner.size(), right_shape.size());
  const std::int64_t count = product_of(batches, 0, n);
  out.array =
      matmul(left.reshape({count, rows, depth}), right.reshape({count, depth, columns})).reshape(shape).astype(dtype);
  return out;
}

/// The number of elements of the product of two terms.
std::int64_t result_size(const Term& a, const Term& b, std::string_view kept) {
  std::int64_t size = 1;
  for (std::size_t d = 0; d < a.labels.size(); ++d)
    if (has(kept, a.labels[d])) size *= a.array.shape()[d];
  for (std::size_t d = 0; d < b.labels.size(); ++d)
    if (has(kept, b.labels[d]) && !has(a.labels, b.labels[d])) size *= b.array.shape()[d];
  return size;
}

struct Subscripts {
  std::vector<std::string> operands;
  std::string result;
};

Subscripts parse(std::string_view subscripts, const std::vector<Array>& operands) {
  std::string text;
  for (const char c : subscripts)
    if (c != ' ') text += c;
  const std::size_t arrow = text.find("->");
  Subscripts out;
  std::string inputs = text.substr(0, arrow) + ",";
  for (std::size_t at; (at = inputs.find(',')) != std::string::npos; inputs.erase(0, at + 1))
    out.operands.push_back(inputs.substr(0, at));
  if (out.operands.size() != operands.size())
    reject(subscripts, "they name " + std::to_string(out.operands.size()) + " operands, but there are " +
                           std::to_string(operands.size()));
  std::size_t most = 0;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    std::string& part = out.operands[k];
    const bool has_dots = part.find(dots) != std::string::npos;
    const std::size_t letters = part.size() - (has_dots ? dots.size() : 0), rank = operands[k].shape().size();
    if (has_dots ? letters > rank || rank - letters > 10 : letters != rank)
      reject(subscripts, "operand " + std::to_string(k) + " has " + std::to_string(rank) + " axes (shape " +
                             to_string(operands[k].shape()) + "), but \"" + part + "\" names " +
                             std::to_string(letters));
    if (has_dots) most = std::max(most, rank - letters);
    part = expand(subscripts, part, has_dots ? rank - letters : 0);
  }
  std::string all;
  for (const std::string& part : out.operands) all += part;
  if (arrow == std::string::npos) {
    out.result = expand(subscripts, std::string(dots), most);
    std::string once;
    for (const char c : all)
      if (c > '9' && std::ranges::count(all, c) == 1) once += c;
    std::ranges::sort(once);
    out.result += once;
    return out;
  }
  if (most > 0 && text.find(dots, arrow + 2) == std::string::npos)
    reject(subscripts, "the operands have further axes, but the result has no ...");
  out.result = expand(subscripts, text.substr(arrow + 2), most);
  for (const char c : out.result) {
    if (!has(all, c)) reject(subscripts, std::string("no operand has the axis '") + c + "' of the result");
    if (std::ranges::count(out.result, c) > 1)
      reject(subscripts, std::string("the result has the axis '") + c + "' twice");
  }
  return out;
}

void check_extents(const std::vector<Term>& terms) {
  std::map<char, std::int64_t> extents;
  for (const Term& term : terms)
    for (std::size_t d = 0; d < term.labels.size(); ++d) {
      const std::int64_t extent = term.array.shape()[d];
      std::int64_t& known = extents.try_emplace(term.labels[d], extent).first->second;
      if (known == 1) known = extent;
      if (extent != known && extent != 1)
        fail<ShapeError>({.operation = "einsum",
                          .with = {{"label", std::string(1, term.labels[d])},
                                   {"extents", std::to_string(known) + " and " + std::to_string(extent)}},
                          .wrong = "axes of the same label have different extents"});
    }
}

}  // namespace

Array einsum(std::string_view subscripts, const std::vector<Array>& operands) {
  const Operation operation("einsum", std::span(operands));
  const Subscripts parsed = parse(subscripts, operands);
  std::vector<Term> terms;
  DType dtype = operands[0].dtype();
  for (const Array& operand : operands) dtype = promote(dtype, operand.dtype());
  for (std::size_t k = 0; k < operands.size(); ++k)
    terms.push_back(without_repeated({operands[k].astype(dtype), parsed.operands[k]}));
  check_extents(terms);
  while (terms.size() > 1) {
    const auto kept_without = [&](std::size_t i, std::size_t j) {
      std::string kept = parsed.result;
      for (std::size_t k = 0; k < terms.size(); ++k)
        if (k != i && k != j) kept += terms[k].labels;
      return kept;
    };
    std::size_t first = 0, second = 1;
    std::int64_t least = -1;
    for (std::size_t i = 0; i < terms.size(); ++i)
      for (std::size_t j = i + 1; j < terms.size(); ++j) {
        const std::int64_t size = result_size(terms[i], terms[j], kept_without(i, j));
        if (least < 0 || size < least) least = size, first = i, second = j;
      }
    terms[first] = contracted(terms[first], terms[second], kept_without(first, second));
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(second));
  }
  const Term result = summed(std::move(terms[0]), parsed.result);
  return operation.finish(arranged(result, parsed.result).astype(dtype), [&] {
    return Attributes{{"subscripts", std::string(subscripts)}};
  });
}

Array tensordot(const Array& a, const Array& b, std::vector<int> a_axes, std::vector<int> b_axes) {
  const Operation operation("tensordot", a, b);
  if (a_axes.size() != b_axes.size())
    fail<ArgumentError>(
        {.operation = "tensordot",
         .with = {{"axes of a", std::to_string(a_axes.size())}, {"axes of b", std::to_string(b_axes.size())}},
         .wrong = "the numbers of axes differ"});
  std::string of_a(a.shape().size(), ' '), of_b(b.shape().size(), ' '), result;
  char next = 'A';
  const auto name = [&](std::string& labels, int axis, char label) {
    char& c = labels[static_cast<std::size_t>(normalise_axis("tensordot", axis, labels.size()))];
    if (c != ' ')
      fail<ArgumentError>(
          {.operation = "tensordot", .with = {{"axis", std::to_string(axis)}}, .wrong = "the axis occurs twice"});
    c = label;
  };
  for (std::size_t i = 0; i < a_axes.size(); ++i, ++next) {
    name(of_a, a_axes[i], next), name(of_b, b_axes[i], next);
    if (a.shape(a_axes[i]) != b.shape(b_axes[i]))
      fail<ShapeError>({.operation = "tensordot",
                        .with = {{"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
                        .wrong = "the extents of axis " + std::to_string(a_axes[i]) + " and axis " +
                                 std::to_string(b_axes[i]) + " differ"});
  }
  for (std::string* labels : {&of_a, &of_b})
    for (char& c : *labels)
      if (c == ' ') result += c = next++;
  const Term out = contracted({a, of_a}, {b, of_b}, result);
  return operation.finish(arranged(out, result), [&] {
    return Attributes{{"a_axes", std::vector<std::int64_t>(a_axes.begin(), a_axes.end())},
                      {"b_axes", std::vector<std::int64_t>(b_axes.begin(), b_axes.end())}};
  });
}

Array tensordot(const Array& a, const Array& b, int axes) {
  if (axes < 0 || axes > std::min(a.rank(), b.rank()))
    fail<ArgumentError>(
        {.operation = "tensordot",
         .with = {{"axes", std::to_string(axes)}, {"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
         .wrong = "the number of axes must be from 0 to the number of dimensions"});
  std::vector<int> of_a(static_cast<std::size_t>(axes)), of_b(of_a.size());
  std::iota(of_a.begin(), of_a.end(), a.rank() - axes);
  std::iota(of_b.begin(), of_b.end(), 0);
  return tensordot(a, b, of_a, of_b);
}

Array kron(const Array& a, const Array& b) {
  const Operation operation("kron", a, b);
  const std::size_t rank = std::max(a.shape().size(), b.shape().size());
  Shape left, right, shape;
  const auto extent = [&](const Array& x, std::size_t d) {
    const std::size_t missing = rank - x.shape().size();
    return d < missing ? 1 : x.shape()[d - missing];
  };
  for (std::size_t d = 0; d < rank; ++d) {
    left.push_back(extent(a, d)), left.push_back(1);
    right.push_back(1), right.push_back(extent(b, d));
    shape.push_back(extent(a, d) * extent(b, d));
  }
  return operation.finish(times(a.reshape(left), b.reshape(right)).reshape(shape));
}

Array outer(const Array& a, const Array& b) {
  const Operation operation("outer", a, b);
  return operation.finish(times(a.reshape({a.size(), 1}), b.reshape({1, b.size()})));
}

}  // namespace tessera
