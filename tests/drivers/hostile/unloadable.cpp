// SPDX-License-Identifier: Apache-2.0
// Makes a library that the loader rejects, because of an undefined symbol, as if a vendor's dependency were missing.
extern "C" int tessera_fake_library_that_is_not_installed;
extern "C" __attribute__((visibility("default"))) int* tessera_fake_needs();
int* tessera_fake_needs() { return &tessera_fake_library_that_is_not_installed; }
