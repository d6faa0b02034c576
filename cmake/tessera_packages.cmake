# SPDX-License-Identifier: Apache-2.0
# Packages, made by script/release: a relocatable archive (TGZ), and Debian packages (DEB): `tessera` with the program,
# library, module and probe, and `libtessera-dev` with what programs are compiled with.
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VENDOR "${PROJECT_NAME}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs the same kernels on every processor of a machine")
set(CPACK_PACKAGE_DESCRIPTION
"Tessera finds the CPU and the GPUs of a machine (CUDA, ROCm, oneAPI, OpenCL),
and runs kernels, arrays, neural networks and language models on them.")
set(CPACK_RESOURCE_FILE_LICENSE ${tessera_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME "tessera-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Tessera maintainers <maintainers@users.noreply.a-seed-ffa3b74a.example>")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME tessera)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")  # after the summary
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${tessera_BINARY_DIR}/lib)  # the program needs the library
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
file(WRITE ${tessera_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${tessera_BINARY_DIR}/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ocl-icd-libopencl1")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtessera-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}\n
This package contains the headers, and files for CMake and pkg-config.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "tessera (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "g++ (>= 4:12)")

# Debian's policy: a copyright file and a compressed changelog in the documentation folder of each package.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  foreach(package tessera libtessera-dev)
    set(folder ${tessera_BINARY_DIR}/debian/${package})
    configure_file(${tessera_SOURCE_DIR}/cmake/debian_copyright.in ${folder}/copyright @ONLY)
    file(WRITE ${folder}/changelog.Debian "${package} (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Version ${PROJECT_VERSION}. CHANGELOG.md in the source lists the changes.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}
")
    execute_process(COMMAND gzip -9nf ${folder}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
    if(package STREQUAL tessera)
      set(component runtime)
    else()
      set(component dev)
    endif()
    install(FILES ${folder}/copyright ${folder}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
            COMPONENT ${component})
  endforeach()
endif()

include(CPack)
