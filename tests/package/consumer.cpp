// SPDX-License-Identifier: Apache-2.0
// A user's program that uses the installed package: calls the library, and catches an error thrown inside it.
#include <tessera/tessera.h>
#include <iostream>

int main() {
  if (tessera::dtype_from_name("bf16") != tessera::DType::bf16) {
    std::cerr << "dtype_from_name(\"bf16\") is not bf16\n";
    return 1;
  }
  try {
    tessera::fail<tessera::ShapeError>({.operation = "consumer", .wrong = "thrown on purpose"});
  } catch (const tessera::Error& error) {
    std::cout << error.what() << "\n";
    return 0;
  }
  return 1;
}
