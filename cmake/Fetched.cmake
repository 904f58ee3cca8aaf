# Source releases for machines that lack a package: pinned, hashed, compiled as targets with the
# names that the installed packages have.
#
# The hashes were checked in two independent ways: json, googletest, utf8proc, PCRE2 and xxHash against
# the original archives that Debian keeps of the same releases, all of them against at least two
# public package recipes (Conan, WrapDB, Homebrew, Spack, xmake). Their own CMake files are not
# used: half of them ask for policies that CMake 4 no longer has.
#
# FINETUNE_ARCHIVES names a folder that holds the archives under the file names below, for machines
# without a network; the hashes are checked there too.
include(FetchContent)
if(POLICY CMP0135)
  cmake_policy(SET CMP0135 NEW)
endif()
set(FINETUNE_ARCHIVES "" CACHE PATH "Folder with downloaded archives of missing packages")

# Sets <name>_SOURCE_DIR in the caller's scope to the unpacked release.
macro(fetch_release name package file url hash)
  if(NOT FINETUNE_FETCH)
    message(FATAL_ERROR "${name} was not found. Install it (Debian, Ubuntu: apt-get install "
            "${package}) or allow fetching it with -DFINETUNE_FETCH=ON.")
  endif()
  message(STATUS "${name} is not installed; fetching ${file} (or: apt-get install ${package})")
  set(_source "${url}")
  if(FINETUNE_ARCHIVES AND EXISTS "${FINETUNE_ARCHIVES}/${file}")
    set(_source "${FINETUNE_ARCHIVES}/${file}")
  endif()
  # The missing sub-folder keeps CMake from adding the release's own project.
  FetchContent_Declare(${name} URL ${_source} URL_HASH SHA256=${hash} SOURCE_SUBDIR none)
  FetchContent_MakeAvailable(${name})
endmacro()

# Not our code: no warnings of ours, its headers are SYSTEM for targets that link it.
function(fetched_target target alias)
  cmake_parse_arguments(FETCHED "" "" "SOURCES;INCLUDES;DEFINITIONS" ${ARGN})
  if(FETCHED_SOURCES)
    add_library(${target} STATIC ${FETCHED_SOURCES})
    target_compile_options(${target} PRIVATE -w)
    target_include_directories(${target} SYSTEM PUBLIC ${FETCHED_INCLUDES})
    target_compile_definitions(${target} PUBLIC ${FETCHED_DEFINITIONS})
    target_link_libraries(${target} PUBLIC Threads::Threads)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} SYSTEM INTERFACE ${FETCHED_INCLUDES})
    target_compile_definitions(${target} INTERFACE ${FETCHED_DEFINITIONS})
  endif()
  add_library(${alias} ALIAS ${target})
endfunction()

function(fetch_nlohmann_json)
  fetch_release(nlohmann_json nlohmann-json3-dev json-3.11.3.tar.gz
    https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
    0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406)
  fetched_target(fetched_nlohmann_json nlohmann_json::nlohmann_json
    INCLUDES ${nlohmann_json_SOURCE_DIR}/include)
endfunction()

function(fetch_cli11)
  fetch_release(cli11 libcli11-dev CLI11-2.4.2.tar.gz
    https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a)
  fetched_target(fetched_cli11 CLI11::CLI11 INCLUDES ${cli11_SOURCE_DIR}/include)
endfunction()

function(fetch_spdlog)
  fetch_release(spdlog libspdlog-dev spdlog-1.14.1.tar.gz
    https://github.com/gabime/spdlog/archive/refs/tags/v1.14.1.tar.gz
    1586508029a7d0670dfcb2d97575dcdc242d3868a259742b69f100801ab4e16b)
  file(GLOB sources ${spdlog_SOURCE_DIR}/src/*.cpp)
  fetched_target(fetched_spdlog spdlog::spdlog SOURCES ${sources}
    INCLUDES ${spdlog_SOURCE_DIR}/include DEFINITIONS SPDLOG_COMPILED_LIB)
endfunction()

function(fetch_yaml_cpp)
  fetch_release(yaml_cpp libyaml-cpp-dev yaml-cpp-0.8.0.tar.gz
    https://github.com/jbeder/yaml-cpp/archive/refs/tags/0.8.0.tar.gz
    fbe74bbdcee21d656715688706da3c8becfd946d92cd44705cc6098bb23b3a16)
  file(GLOB sources ${yaml_cpp_SOURCE_DIR}/src/*.cpp)
  fetched_target(fetched_yaml_cpp yaml-cpp::yaml-cpp SOURCES ${sources}
    INCLUDES ${yaml_cpp_SOURCE_DIR}/include DEFINITIONS YAML_CPP_STATIC_DEFINE)
endfunction()

# Macros, because a language cannot be enabled inside a function.
macro(fetch_utf8proc)
  fetch_release(utf8proc libutf8proc-dev utf8proc-2.8.0.tar.gz
    https://github.com/JuliaStrings/utf8proc/archive/refs/tags/v2.8.0.tar.gz
    a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc)
  enable_language(C)
  fetched_target(fetched_utf8proc utf8proc::utf8proc SOURCES ${utf8proc_SOURCE_DIR}/utf8proc.c
    INCLUDES ${utf8proc_SOURCE_DIR} DEFINITIONS UTF8PROC_STATIC)
endmacro()

macro(fetch_pcre2)
  fetch_release(pcre2 libpcre2-dev pcre2-10.42.tar.gz
    https://github.com/PCRE2Project/pcre2/releases/download/pcre2-10.42/pcre2-10.42.tar.gz
    c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f)
  enable_language(C)
  set(_pcre2 ${pcre2_BINARY_DIR}/generated)
  configure_file(${pcre2_SOURCE_DIR}/src/config.h.generic ${_pcre2}/config.h COPYONLY)
  configure_file(${pcre2_SOURCE_DIR}/src/pcre2.h.generic ${_pcre2}/pcre2.h COPYONLY)
  configure_file(${pcre2_SOURCE_DIR}/src/pcre2_chartables.c.dist ${_pcre2}/pcre2_chartables.c
    COPYONLY)
  set(_pcre2_sources ${_pcre2}/pcre2_chartables.c)
  foreach(_part auto_possess compile config context convert dfa_match error extuni find_bracket
          jit_compile maketables match match_data newline ord2utf pattern_info script_run serialize
          string_utils study substitute substring tables ucd valid_utf xclass)
    list(APPEND _pcre2_sources ${pcre2_SOURCE_DIR}/src/pcre2_${_part}.c)
  endforeach()
  fetched_target(fetched_pcre2 pcre2::pcre2 SOURCES ${_pcre2_sources} INCLUDES ${_pcre2}
    DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
  target_include_directories(fetched_pcre2 PRIVATE ${pcre2_SOURCE_DIR}/src)
  target_compile_definitions(fetched_pcre2 PRIVATE HAVE_CONFIG_H SUPPORT_JIT SUPPORT_UNICODE)
endmacro()

macro(fetch_xxhash)
  fetch_release(xxhash libxxhash-dev xxHash-0.8.3.tar.gz
    https://github.com/Cyan4973/xxHash/archive/refs/tags/v0.8.3.tar.gz
    aae608dfe8213dfd05d909a57718ef82f30722c392344583d3f39050c7f29a80)
  enable_language(C)
  fetched_target(fetched_xxhash xxHash::xxhash SOURCES ${xxhash_SOURCE_DIR}/xxhash.c
    INCLUDES ${xxhash_SOURCE_DIR})
endmacro()

function(fetch_googletest)
  fetch_release(googletest "libgtest-dev libgmock-dev" googletest-1.12.1.tar.gz
    https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
    81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
  set(gtest ${googletest_SOURCE_DIR}/googletest)
  set(gmock ${googletest_SOURCE_DIR}/googlemock)
  fetched_target(fetched_gtest GTest::gtest SOURCES ${gtest}/src/gtest-all.cc
    INCLUDES ${gtest}/include)
  target_include_directories(fetched_gtest PRIVATE ${gtest})
  fetched_target(fetched_gmock GTest::gmock SOURCES ${gmock}/src/gmock-all.cc
    INCLUDES ${gmock}/include)
  target_include_directories(fetched_gmock PRIVATE ${gmock})
  target_link_libraries(fetched_gmock PUBLIC fetched_gtest)
  fetched_target(fetched_gtest_main GTest::gtest_main SOURCES ${gtest}/src/gtest_main.cc
    INCLUDES ${gtest}/include)
  target_link_libraries(fetched_gtest_main PUBLIC fetched_gtest)
endfunction()
