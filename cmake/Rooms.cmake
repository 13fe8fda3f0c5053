# A room is a folder of src/: one static library `cmforge_<room>` made of all its .cc files, linked to the
# rooms below it. tests/<room>/*_test.cc become one program `<room>_test`.

set(CMFORGE_WARNINGS -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wconversion)
# Bits are promised (quantizers, exact logits): no contraction of a*b+c unless a kernel asks by intrinsic.
set(CMFORGE_FLAGS -ffp-contract=off -fno-math-errno)

# Builds that only check (lint, sanitizers, fuzzers) share one precompiled header, which halves their compile time; the
# release build goes without, so that every file must include what it uses.
option(CMFORGE_PRECOMPILE "Share precompiled headers" OFF)
function(cmforge_precompile target)
  if(CMFORGE_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

function(cmforge_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cli/(program|embedded)/")
  list(FILTER sources EXCLUDE REGEX "_(macos|linux)\\.cc$")
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    file(GLOB_RECURSE platform CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_linux.cc)
  elseif(APPLE)
    file(GLOB_RECURSE platform CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_macos.cc)
  endif()
  if(NOT sources)  # headers only
    add_library(cmforge_${name} INTERFACE)
    target_include_directories(cmforge_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(cmforge_${name} INTERFACE ${ARG_DEPENDS})
    return()
  endif()
  add_library(cmforge_${name} STATIC ${sources} ${platform})
  target_include_directories(cmforge_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(cmforge_${name} PRIVATE ${CMFORGE_WARNINGS} ${CMFORGE_FLAGS})
  target_link_libraries(cmforge_${name} PUBLIC ${ARG_DEPENDS})
  if(NOT name MATCHES "^(kernels|cli)$")  # kernels: flags per file; cli has its own
    cmforge_precompile(cmforge_${name} <algorithm> <fmt/format.h> <memory> <string> <vector> <tl/expected.hpp> <nlohmann/json.hpp>)
  endif()
endfunction()

function(cmforge_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.h)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_compile_options(${name}_test PRIVATE -Wall -Wextra -Wno-missing-field-initializers ${CMFORGE_FLAGS}
                                                $<$<CONFIG:Release>:-O1>)  # what is tested is optimized, the tests need not be
  # Tests run in the source folder, and name files from there: a cached object serves every clone.
  target_compile_definitions(${name}_test PRIVATE CMFORGE_TEST_DATA="tests/data" CMFORGE_SOURCE_DIR=".")
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} rapidcheck GTest::gmock GTest::gtest_main)
  cmforge_precompile(${name}_test <gtest/gtest.h> <gmock/gmock.h> <fmt/format.h> <tl/expected.hpp> <nlohmann/json.hpp>)
  gtest_discover_tests(${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} DISCOVERY_TIMEOUT 120
                       PROPERTIES TIMEOUT 600)
endfunction()
