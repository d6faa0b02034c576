// SPDX-License-Identifier: Apache-2.0
// The precompiled headers of the tests are those of this program (tests/CMakeLists.txt).
int main() {}
