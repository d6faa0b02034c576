# SPDX-License-Identifier: Apache-2.0
# The shared library with all layers, and the installation of the library, code-generation module, headers and CMake
# package.

# The headers that users include. These headers, and all project headers that they include, are installed; the list is
# expanded at install time. script/check-layers reads this list and rejects third-party headers in any of them.
set(TESSERA_PUBLIC_HEADERS
    tessera/tessera.h
    tessera/device/launch/kernel_family.h
    tessera/llm/gguf_values.h
    tessera/llm/gguf_writer.h
    tessera/llm/grammar/grammar.h
    tessera/report/report.h
    tessera/testing/testing.h
)

# One library that contains all objects of all layers, even if no other layer uses them.
get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
get_property(layer_libraries GLOBAL PROPERTY TESSERA_LAYER_LIBRARIES)
list(REMOVE_DUPLICATES layer_libraries)
add_library(tessera SHARED)
add_library(tessera::tessera ALIAS tessera)
foreach(layer IN LISTS layers)
  target_sources(tessera PRIVATE $<TARGET_OBJECTS:${layer}>)
endforeach()
target_link_libraries(tessera PRIVATE ${layer_libraries})
target_include_directories(tessera INTERFACE $<BUILD_INTERFACE:${tessera_SOURCE_DIR}>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tessera INTERFACE cxx_std_20)
set_target_properties(tessera PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                                         INSTALL_RPATH "$ORIGIN")
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # Exports only the project's own symbols, because a program may use another version of fmt, spdlog or nlohmann-json.
  target_link_options(tessera PRIVATE "LINKER:--build-id" "LINKER:--version-script=${tessera_SOURCE_DIR}/cmake/tessera.map")
  set_target_properties(tessera PROPERTIES LINK_DEPENDS ${tessera_SOURCE_DIR}/cmake/tessera.map)
  if(NOT TESSERA_SANITIZE)
    target_link_options(tessera PRIVATE "LINKER:--no-undefined" "LINKER:--as-needed")
  endif()
endif()
add_dependencies(tessera_installed tessera)

# The run path is relative, so that the program finds the library in any prefix, even after it has been moved.
file(RELATIVE_PATH relative "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set(TESSERA_PROGRAM_RPATH "$ORIGIN/${relative}")

# The library loads the LLVM module when it first compiles a CPU kernel. The module is in the folder of the library.
foreach(module tessera-codegen tessera_codegen)
  if(TARGET ${module})
    set_target_properties(${module} PROPERTIES INSTALL_RPATH "$ORIGIN")
    add_dependencies(tessera ${module})  # projects that include this one also need the module
    add_dependencies(tessera_installed ${module})
    if(TESSERA_INSTALL)
      install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
    endif()
  endif()
endforeach()

if(TESSERA_INSTALL)
  install(TARGETS tessera EXPORT tesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

  # The list of headers is expanded at install time, so that it always matches the sources.
  install(CODE "
    set(source_dir \"${tessera_SOURCE_DIR}\")
    set(public_headers \"${TESSERA_PUBLIC_HEADERS}\")
    set(include_dir \"${CMAKE_INSTALL_INCLUDEDIR}\")
    include(\"${tessera_SOURCE_DIR}/cmake/install_headers.cmake\")")

  include(CMakePackageConfigHelpers)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
  install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_dir})
  configure_package_config_file(${tessera_SOURCE_DIR}/cmake/tesseraConfig.cmake.in
                                ${tessera_BINARY_DIR}/tesseraConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${tessera_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${tessera_BINARY_DIR}/tesseraConfig.cmake ${tessera_BINARY_DIR}/tesseraConfigVersion.cmake
          DESTINATION ${package_dir})
  install(FILES ${tessera_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
