# SPDX-License-Identifier: Apache-2.0
# ctest entries for the project as a whole: its layers, and the package it installs.

add_test(NAME check_layers COMMAND ${tessera_SOURCE_DIR}/script/check-layers)
add_test(NAME check_layers_self_test COMMAND ${tessera_SOURCE_DIR}/script/check-layers --self-test)
add_test(NAME check_scripts COMMAND ${tessera_SOURCE_DIR}/tests/scripts/check)
add_test(NAME docs_site COMMAND ${tessera_SOURCE_DIR}/tests/scripts/docs_site ${tessera_BINARY_DIR}/docs_site)
set_tests_properties(docs_site PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
set_tests_properties(check_layers check_layers_self_test check_scripts PROPERTIES TIMEOUT 120)

# A sanitized library wants a sanitized program, which no consumer is.
if(TESSERA_INSTALL AND NOT TESSERA_SANITIZE)
  add_test(NAME package COMMAND ${tessera_SOURCE_DIR}/tests/package/check ${tessera_BINARY_DIR} ${CMAKE_CXX_COMPILER})
  set_tests_properties(package PROPERTIES TIMEOUT 300 ENVIRONMENT "CMAKE=${CMAKE_COMMAND}")
endif()
