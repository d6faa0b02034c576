# SPDX-License-Identifier: Apache-2.0
# An overlay port that builds the sources around it: vcpkg install tessera --overlay-ports=packaging/vcpkg/ports
# (docs/versions.md).
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "dynamic" TESSERA_SHARED)
vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS FEATURES codegen TESSERA_CODEGEN)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DTESSERA_SHARED=${TESSERA_SHARED}
    -DTESSERA_PROGRAM=OFF
    -DTESSERA_TESTS=OFF
    -DTESSERA_EXAMPLES=OFF
    -DTESSERA_BENCHMARKS=OFF
    -DTESSERA_PYTHON=OFF
    -DTESSERA_INSTALL=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tessera)
vcpkg_fixup_pkgconfig()
vcpkg_copy_pdbs()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
