// SPDX-License-Identifier: Apache-2.0
// A library that the dynamic loader rejects because of an undefined symbol, as if a dependency of a vendor's library
// were missing.
extern "C" int tessera_fake_library_that_is_not_installed;
extern "C" __attribute__((visibility("default"))) int* tessera_fake_needs();
int* tessera_fake_needs() { return &tessera_fake_library_that_is_not_installed; }
