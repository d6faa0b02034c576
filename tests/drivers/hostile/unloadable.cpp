// SPDX-License-Identifier: Apache-2.0
// Makes a library that the loader refuses: it needs something that no library has, as when a vendor's own is missing.
extern "C" int tessera_fake_library_that_is_not_installed;
extern "C" __attribute__((visibility("default"))) int* tessera_fake_needs();
int* tessera_fake_needs() { return &tessera_fake_library_that_is_not_installed; }
