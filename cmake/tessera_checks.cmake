# SPDX-License-Identifier: Apache-2.0
# ctest entries for the whole project: the layer rules and the installed package.

add_test(NAME check_layers COMMAND ${tessera_SOURCE_DIR}/script/check-layers)
add_test(NAME check_layers_self_test COMMAND ${tessera_SOURCE_DIR}/script/check-layers --self-test)
add_test(NAME check_words COMMAND ${tessera_SOURCE_DIR}/script/check-words)
add_test(NAME check_scripts COMMAND ${tessera_SOURCE_DIR}/tests/scripts/check)
add_test(NAME docs_site COMMAND ${tessera_SOURCE_DIR}/tests/scripts/docs_site ${tessera_BINARY_DIR}/docs_site)
set_tests_properties(docs_site PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
set_tests_properties(check_layers check_layers_self_test check_words check_scripts PROPERTIES TIMEOUT 120)

# A library with sanitizers can be linked only into programs with sanitizers, and the consumer of the package has none.
if(TESSERA_INSTALL AND NOT TESSERA_SANITIZE)
  add_test(NAME package COMMAND ${tessera_SOURCE_DIR}/tests/package/check ${tessera_BINARY_DIR} ${CMAKE_CXX_COMPILER})
  set_tests_properties(package PROPERTIES TIMEOUT 300 ENVIRONMENT "CMAKE=${CMAKE_COMMAND}")
  add_test(NAME c_interface COMMAND ${tessera_SOURCE_DIR}/tests/c/check ${tessera_BINARY_DIR})
  set_tests_properties(c_interface PROPERTIES TIMEOUT 120)
endif()
