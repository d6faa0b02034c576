# SPDX-License-Identifier: Apache-2.0
# Settings that all targets share, and functions that declare layers, tests, programs, examples and benchmarks.

include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)  # only in this folder, so a project that includes this one keeps its own
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # the shared library links the packages that were found in the folders of the layers
# Unity build: the sources of a target are compiled in batches, which halves the time of a build from scratch. Names in
# anonymous namespaces must therefore be unique within a target. OFF compiles each source separately (the dev preset).
option(TESSERA_UNITY "Compile the sources of each target in batches" ON)
set(CMAKE_UNITY_BUILD ${TESSERA_UNITY})
if(TESSERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # gcc takes the sources of a batch for headers
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
# Programs and libraries are built into folders next to each other, so that the program finds the module like an
# installed one.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${tessera_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${tessera_BINARY_DIR}/lib)

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  # Clones in different folders share the cache. Paths are therefore relative, and debug information may name the folder
  # of another clone.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${tessera_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${TESSERA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()
find_package(Threads REQUIRED)

# mold links each program a quarter of a second faster than ld, and there are two hundred test programs.
find_program(TESSERA_MOLD mold)
if(TESSERA_MOLD AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-heapsize=500000)  # less garbage collection, which takes a tenth of the time
endif()
# False reports: overlaps in `"text" + std::string` (PR 105651), accesses behind inlined vectors, and with g++ 13 and later
# references to elements of tables that are returned by functions with temporary arguments.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-array-bounds -Wno-dangling-reference)
endif()
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  if(TESSERA_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With these checks, g++ does not accept addresses of templates in constant expressions (traversable.h).
    add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()

# tessera_layer(NAME [DEPENDS layer...] [LIBRARIES lib...] [SUBFOLDERS folder...])
# Makes a static library tessera_NAME from all sources in the folder and the named subfolders. Sources are globbed, so a
# new file requires no edit here. script/check-layers checks the includes. A folder without sources becomes an interface
# library.
function(tessera_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES;SUBFOLDERS" ${ARGN})
  string(REPLACE "/" "_" target tessera_${name})
  set(patterns ${tessera_SOURCE_DIR}/tessera/${name}/*.cpp)
  foreach(folder IN LISTS arg_SUBFOLDERS)
    list(APPEND patterns ${tessera_SOURCE_DIR}/tessera/${name}/${folder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(sources)
    set(public PUBLIC)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${target})
    set_property(GLOBAL APPEND PROPERTY TESSERA_LAYER_LIBRARIES ${arg_LIBRARIES})
  else()
    set(public INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  target_include_directories(${target} ${public} ${tessera_SOURCE_DIR})
  foreach(layer IN LISTS arg_DEPENDS)
    string(REPLACE "/" "_" layer ${layer})
    target_link_libraries(${target} ${public} tessera_${layer})
  endforeach()
endfunction()

# tessera_test(NAME LAYERS layer... [TIMEOUT seconds] [LABELS label...] [SOURCES file...] [LIBRARIES lib...])
# Builds tests/SUBFOLDER/NAME.cpp as a GoogleTest program with one ctest entry and a time limit. Two labels have a
# meaning: `pocl` (an OpenCL compiler runs in the process; excluded under asan) and `threads` (tests that run under
# tsan).
function(tessera_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "LAYERS;LABELS;SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING)  # in emulation
    math(EXPR arg_TIMEOUT "10 * ${arg_TIMEOUT}")
  endif()
  if(NOT TARGET tessera_test_environment)
    add_library(tessera_test_environment OBJECT ${tessera_SOURCE_DIR}/tests/support/no_kernel_cache.cpp)
  endif()
  file(GLOB source CONFIGURE_DEPENDS ${tessera_SOURCE_DIR}/tests/*/${name}.cpp)
  list(LENGTH source found)
  if(NOT found EQUAL 1)
    message(FATAL_ERROR "tessera_test(${name}): expected exactly one ${name}.cpp in the subfolders of tests/; found: '${source}'")
  endif()
  add_executable(${name} ${source} ${arg_SOURCES} $<TARGET_OBJECTS:tessera_test_environment>)
  foreach(layer IN LISTS arg_LAYERS)
    string(REPLACE "/" "_" layer ${layer})
    target_link_libraries(${name} PRIVATE tessera_${layer})
  endforeach()
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  if(TARGET tests_headers)
    target_precompile_headers(${name} REUSE_FROM tests_headers)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${tessera_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

# tessera_program(NAME [LIBRARIES lib...] [SUBFOLDERS folder...])
# Builds all sources of the calling folder and the named subfolders as one program in bin/, linked to the shared
# library, and installs it.
function(tessera_program name)
  cmake_parse_arguments(arg "" "" "LIBRARIES;SUBFOLDERS" ${ARGN})
  list(TRANSFORM arg_SUBFOLDERS REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cpp" OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${patterns})
  add_executable(${name}_program ${sources})
  target_link_libraries(${name}_program PRIVATE ${TESSERA_PROGRAM_LIBRARY} ${arg_LIBRARIES})
  tessera_link_portably(${name}_program)
  set_target_properties(${name}_program PROPERTIES OUTPUT_NAME ${name} INSTALL_RPATH "${TESSERA_PROGRAM_RPATH}")
  if(TESSERA_INSTALL)
    install(TARGETS ${name}_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
  add_dependencies(tessera_installed ${name}_program)
endfunction()

# tessera_example(FOLDER/NAME [ARGUMENTS argument...] [LIBRARIES lib...] [LABELS label...] [TIMEOUT seconds])
# Builds examples/FOLDER/NAME.cpp as example_NAME, linked like the program of a user. ctest runs it. It must exit with 0
# and print the output that the comment at the end of the source shows (cmake/run_example.cmake).
function(tessera_example path)
  cmake_parse_arguments(arg "" "TIMEOUT" "ARGUMENTS;LIBRARIES;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  get_filename_component(name ${path} NAME)
  add_executable(example_${name} ${path}.cpp)
  target_link_libraries(example_${name} PRIVATE tessera ${arg_LIBRARIES})
  if(TARGET examples_headers)
    target_precompile_headers(example_${name} REUSE_FROM examples_headers)
  endif()
  if(TESSERA_TESTS)
    add_test(NAME example_${name} WORKING_DIRECTORY ${tessera_SOURCE_DIR}
      COMMAND ${CMAKE_COMMAND} -D SOURCE=${CMAKE_CURRENT_SOURCE_DIR}/${path}.cpp -P ${tessera_SOURCE_DIR}/cmake/run_example.cmake
              -- $<TARGET_FILE:example_${name}> ${arg_ARGUMENTS})
    set_tests_properties(example_${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "example;${arg_LABELS}"
                         ENVIRONMENT_MODIFICATION "TESSERA_CACHE_DIR=set:${tessera_BINARY_DIR}/cache")
  endif()
endfunction()

# tessera_benchmark(NAME LAYERS layer... [LIBRARIES lib...] [SOURCES file...])
# Builds benchmarks/NAME.cpp with Google Benchmark in benchmarks/, where script/bench finds it.
function(tessera_benchmark name)
  cmake_parse_arguments(arg "" "" "LAYERS;LIBRARIES;SOURCES" ${ARGN})
  add_executable(bench_${name} ${name}.cpp ${arg_SOURCES})
  foreach(layer IN LISTS arg_LAYERS)
    string(REPLACE "/" "_" layer ${layer})
    target_link_libraries(bench_${name} PRIVATE tessera_${layer})
  endforeach()
  target_link_libraries(bench_${name} PRIVATE ${arg_LIBRARIES} benchmark::benchmark Threads::Threads)
  set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY ${tessera_BINARY_DIR}/benchmarks)
  add_dependencies(tessera_benchmarks bench_${name})
endfunction()

# The targets that script/run builds (everything that is installed), and the targets that script/bench builds.
add_custom_target(tessera_installed)
add_custom_target(tessera_benchmarks)
