# SPDX-License-Identifier: Apache-2.0
# With TESSERA_PORTABLE=ON, the program, the probe and the code-generation module contain all libraries except the C
# library, also the one of C++. libtessera.so contains all except the library of C++, which it shares with programs that
# use it.
set(TESSERA_SYSROOT "" CACHE PATH "Folder with an older C library (usr/lib) that a portable build is linked with")

find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
set(TESSERA_FMT fmt::fmt)
set(TESSERA_SPDLOG spdlog::spdlog)
if(TESSERA_PORTABLE)
  if(NOT TESSERA_SHARED)
    message(FATAL_ERROR "TESSERA_PORTABLE needs TESSERA_SHARED=ON")
  endif()
  # Static libraries are preferred. Libraries without one are found as usual.
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
  add_library(tessera_formatting STATIC ${tessera_SOURCE_DIR}/cmake/portable_formatting.cpp)
  target_compile_options(tessera_formatting PRIVATE -fkeep-inline-functions)
  # The same definitions as with the shared libraries, so that the objects of both builds are the same.
  foreach(name fmt spdlog)
    add_library(tessera_${name} INTERFACE)
    get_target_property(definitions ${name}::${name} INTERFACE_COMPILE_DEFINITIONS)
    target_compile_definitions(tessera_${name} INTERFACE ${definitions})
    target_link_libraries(tessera_${name} INTERFACE tessera_formatting)
  endforeach()
  set(TESSERA_FMT tessera_fmt)
  set(TESSERA_SPDLOG tessera_spdlog)
endif()

# Links a target of a portable build with the C library in TESSERA_SYSROOT and, unless it is a library, with a static
# C++ library.
function(tessera_link_portably target)
  if(NOT TESSERA_PORTABLE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  if(TESSERA_SYSROOT)
    # The C library before 2.34 has separate libraries for threads and loading.
    set(libraries ${TESSERA_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
    target_link_options(${target} PRIVATE -B${libraries}/ -L${libraries} LINKER:--sysroot=${TESSERA_SYSROOT} LINKER:--as-needed)
    target_sources(${target} PRIVATE ${tessera_SOURCE_DIR}/cmake/older_glibc.c)
    target_link_libraries(${target} PRIVATE pthread dl m)
  endif()
endfunction()

# Links static libraries that another static library needs.
function(tessera_link_archives target)
  if(TESSERA_PORTABLE)
    foreach(name IN LISTS ARGN)
      find_library(TESSERA_LIBRARY_${name} ${name} REQUIRED)
      target_link_libraries(${target} PRIVATE ${TESSERA_LIBRARY_${name}})
    endforeach()
  endif()
endfunction()
