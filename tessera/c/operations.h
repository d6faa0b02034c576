// SPDX-License-Identifier: Apache-2.0
// Array operations by name, for interfaces that do not know C++ types: tessera_apply() and the Python module.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::named {

/// An operand: an array, or a number that takes the dtype of the other operand.
using Operand = std::variant<Array, double, std::int64_t, bool>;

/// An argument that is not an array.
struct Attribute {
  std::string_view name;
  std::variant<std::int64_t, double, std::vector<std::int64_t>, std::string> value;
};

/// Calls the operation `name`. Throws ArgumentError if it does not exist, if the number of operands is wrong, or if an
/// attribute is missing, unknown or of the wrong kind, and the errors of the operation.
std::vector<Array> apply(std::string_view name, std::span<const Operand> operands,
                         std::span<const Attribute> attributes);

/// The operations in the form "sum(a; axes, keep)", sorted by name. Operands are before the semicolon: "a?" is
/// optional, and "arrays..." stands for any number. Attributes are after it: "shape!" is required.
std::span<const char* const> operations();

/// Returns the operand as an array. A number becomes an array without axes with this dtype; fractions are truncated for
/// an integer dtype. Throws DtypeError if the number is outside of its range.
Array array_of(const Operand& operand, DType dtype, Device device);

/// Returns the bits of a number as an argument for a kernel's parameter. Throws DtypeError if it cannot be converted.
std::uint64_t scalar_bits(std::string_view operation, std::string_view parameter, DType dtype, const Operand& number);

/// Copies elements in row-major order from host memory to a new array. Bytes of bools that are not 0 are true.
Array from_host(const void* data, DType dtype, const Shape& shape, std::optional<Device> device);

}  // namespace tessera::named
