# SPDX-License-Identifier: Apache-2.0
# Settings that every target shares, and the functions that declare a layer and a test.

include(GNUInstallDirs)
include(CTest)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Everything runnable beside everything loadable, so that the program finds the module as it does when installed.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
find_package(Threads REQUIRED)

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

# tessera_layer(NAME DEPENDS layer... LIBRARIES lib...)
# One folder, one static library tessera_NAME of every source in it. Sources are globbed, so adding a file needs no edit
# here; what a layer may include is checked by script/check-layers.
function(tessera_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tessera/${name}/*.cpp)
  add_library(tessera_${target} STATIC ${sources})
  target_include_directories(tessera_${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  foreach(layer IN LISTS arg_DEPENDS)
    string(REPLACE "/" "_" layer ${layer})
    target_link_libraries(tessera_${target} PUBLIC tessera_${layer})
  endforeach()
  target_link_libraries(tessera_${target} PRIVATE ${arg_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS tessera_${target})
endfunction()

# tessera_test(NAME LAYERS layer... [TIMEOUT seconds] [LABELS label...] [SOURCES file...])
# tests/NAME.cpp as a GoogleTest program, one ctest entry a program, always with a time limit.
function(tessera_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "LAYERS;LABELS;SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${name}.cpp ${arg_SOURCES})
  foreach(layer IN LISTS arg_LAYERS)
    string(REPLACE "/" "_" layer ${layer})
    target_link_libraries(${name} PRIVATE tessera_${layer})
  endforeach()
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
