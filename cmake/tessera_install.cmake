# SPDX-License-Identifier: Apache-2.0
# The shared library with all layers, and the installation of the library, code-generation module, headers and CMake
# package.

# The headers that users include. These headers, and all project headers that they include, are installed; the list is
# expanded at install time. script/check-layers reads this list and rejects third-party headers in any of them.
set(TESSERA_PUBLIC_HEADERS
    tessera/tessera.h
    tessera/c/tessera.h
    tessera/device/launch/kernel_family.h
    tessera/llm/gguf_values.h
    tessera/llm/gguf_writer.h
    tessera/llm/grammar/grammar.h
    tessera/llm/rope_scaling.h
    tessera/pack/exercise.h
    tessera/pack/pack.h
    tessera/report/report.h
    tessera/testing/testing.h
)

# One library that contains all objects of all layers, even if no other layer uses them.
get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
get_property(layer_libraries GLOBAL PROPERTY TESSERA_LAYER_LIBRARIES)
list(REMOVE_DUPLICATES layer_libraries)
list(REMOVE_ITEM layer_libraries nlohmann_json::nlohmann_json)  # headers only
# For binaries that contain libtessera.a. Without the first option, the linker would take the weak register_all_drivers()
# of device/, and no backend. A shared library does not export Tessera's names, so that several libraries can contain it,
# and stays in memory, because Tessera's threads run its code.
set(TESSERA_STATIC_LINK_OPTIONS LINKER:--undefined=tessera_backends LINKER:--exclude-libs,libtessera.a LINKER:-z,nodelete)
function(tessera_add_library name type)
  add_library(${name} ${type})
  foreach(layer IN LISTS layers)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${layer}>)
  endforeach()
  target_link_libraries(${name} PRIVATE ${layer_libraries})
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${tessera_SOURCE_DIR}>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} INTERFACE cxx_std_20)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX ARCHIVE_OUTPUT_DIRECTORY ${tessera_BINARY_DIR}/lib)
  if(type STREQUAL STATIC)
    target_link_options(${name} INTERFACE ${TESSERA_STATIC_LINK_OPTIONS})
  endif()
endfunction()

if(TESSERA_SHARED)
  tessera_add_library(tessera SHARED)
  tessera_link_portably(tessera)
  set_target_properties(tessera PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                                           INSTALL_RPATH "$ORIGIN")
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    # Exports only the project's own symbols, because a program may use another version of fmt, spdlog or nlohmann-json.
    # It stays in memory after dlclose(), because its threads run its code.
    target_link_options(tessera PRIVATE "LINKER:--build-id" "LINKER:-z,nodelete" "LINKER:--version-script=${tessera_SOURCE_DIR}/cmake/tessera.map")
    set_target_properties(tessera PROPERTIES LINK_DEPENDS ${tessera_SOURCE_DIR}/cmake/tessera.map)
    if(NOT TESSERA_SANITIZE)
      target_link_options(tessera PRIVATE "LINKER:--no-undefined" "LINKER:--as-needed")
    endif()
  endif()
else()
  tessera_add_library(tessera STATIC)
  # The folder of the code-generation module and the probe.
  set(folder ${tessera_BINARY_DIR}/lib)
  if(TESSERA_INSTALL)
    set(folder ${CMAKE_INSTALL_FULL_LIBDIR})
  endif()
  foreach(layer device backend_common)
    target_compile_definitions(tessera_${layer} PRIVATE TESSERA_LIBRARY_FOLDER="${folder}")
  endforeach()
endif()
add_library(tessera::tessera ALIAS tessera)
add_dependencies(tessera_installed tessera)

# The program of a portable build does not use libtessera.so, so that it needs no C++ library of the system.
set(TESSERA_PROGRAM_LIBRARY tessera)
if(TESSERA_SHARED AND (TESSERA_PORTABLE OR TESSERA_TESTS))
  tessera_add_library(tessera_static STATIC)
  set_target_properties(tessera_static PROPERTIES OUTPUT_NAME tessera)
  if(TESSERA_PORTABLE)
    set(TESSERA_PROGRAM_LIBRARY tessera_static)
  endif()
endif()

# The run path is relative, so that the program finds the library in any prefix, even after it has been moved.
file(RELATIVE_PATH relative "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set(TESSERA_PROGRAM_RPATH "$ORIGIN/${relative}")

# The library loads the LLVM module when it first compiles a CPU kernel. The module is in the folder of the probe.
# Projects that include this one also need the module and the probe.
add_dependencies(tessera tessera_probe)
foreach(module tessera-codegen tessera_codegen)
  if(TARGET ${module})
    add_dependencies(tessera ${module})
    add_dependencies(tessera_installed ${module})
    if(TESSERA_INSTALL)
      install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera COMPONENT runtime)
    endif()
  endif()
endforeach()

if(TESSERA_INSTALL)
  install(TARGETS tessera EXPORT tesseraTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)

  # The list of headers is expanded at install time, so that it always matches the sources.
  install(CODE "
    set(source_dir \"${tessera_SOURCE_DIR}\")
    set(public_headers \"${TESSERA_PUBLIC_HEADERS}\")
    set(include_dir \"${CMAKE_INSTALL_INCLUDEDIR}\")
    include(\"${tessera_SOURCE_DIR}/cmake/install_headers.cmake\")" COMPONENT dev)

  include(CMakePackageConfigHelpers)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
  install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_dir} COMPONENT dev)
  set(tessera_dependencies "")
  if(NOT TESSERA_SHARED)
    set(tessera_dependencies "include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(spdlog)
find_dependency(PkgConfig)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
")
  endif()
  configure_package_config_file(${tessera_SOURCE_DIR}/cmake/tesseraConfig.cmake.in
                                ${tessera_BINARY_DIR}/tesseraConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${tessera_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${tessera_BINARY_DIR}/tesseraConfig.cmake ${tessera_BINARY_DIR}/tesseraConfigVersion.cmake
          DESTINATION ${package_dir} COMPONENT dev)
  # The prefix is relative to the file, so that the installation can be moved.
  file(RELATIVE_PATH tessera_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  if(TESSERA_SHARED)
    set(tessera_link_flags "-ltessera")
    set(tessera_requires "")
  else()
    list(JOIN TESSERA_STATIC_LINK_OPTIONS " " tessera_link_flags)
    string(REPLACE "LINKER:" "-Wl," tessera_link_flags "${tessera_link_flags} -ltessera -pthread")
    set(tessera_requires "fmt spdlog libpcre2-8")
  endif()
  configure_file(${tessera_SOURCE_DIR}/cmake/tessera.pc.in ${tessera_BINARY_DIR}/tessera.pc @ONLY)
  install(FILES ${tessera_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
  install(FILES ${tessera_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
endif()
