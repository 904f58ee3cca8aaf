# Every package that is linked: the installed one where there is one, else (FINETUNE_FETCH) the
# pinned, hashed source release of cmake/Fetched.cmake. Nothing is vendored.
# Reasons and licences: src/README.md.
include(Fetched)

# Links lib<name>.a instead of the shared library that an imported target names, where the system has
# it: the binary then runs on systems that lack the library.
function(finetune_link_archive target name)
  get_target_property(imported ${target} IMPORTED)
  find_library(FINETUNE_ARCHIVE_${name} lib${name}.a)
  mark_as_advanced(FINETUNE_ARCHIVE_${name})
  if(NOT FINETUNE_STATIC OR NOT imported OR NOT FINETUNE_ARCHIVE_${name})
    return()
  endif()
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    set_target_properties(${target} PROPERTIES
      IMPORTED_LOCATION_${configuration} "${FINETUNE_ARCHIVE_${name}}")
  endforeach()
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${FINETUNE_ARCHIVE_${name}}")
endfunction()

find_package(Threads REQUIRED)
find_package(TorchWheel REQUIRED)

find_package(nlohmann_json 3.10 QUIET)
if(NOT TARGET nlohmann_json::nlohmann_json)
  fetch_nlohmann_json()
endif()

find_package(CLI11 2.1 QUIET)
if(NOT TARGET CLI11::CLI11)
  fetch_cli11()
endif()

find_package(spdlog 1.9 QUIET)
if(NOT TARGET spdlog::spdlog)
  fetch_spdlog()
endif()
set(FINETUNE_SPDLOG spdlog::spdlog)
get_target_property(_spdlog_imported spdlog::spdlog IMPORTED)
if(FINETUNE_STATIC AND _spdlog_imported AND TARGET fmt::fmt-header-only)
  # Debian has no archive of either library; one source includes their headers.
  add_library(finetune_spdlog INTERFACE)
  target_compile_definitions(finetune_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
  target_link_libraries(finetune_spdlog INTERFACE fmt::fmt-header-only Threads::Threads)
  get_target_property(_spdlog_includes spdlog::spdlog INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(finetune_spdlog SYSTEM INTERFACE ${_spdlog_includes})
  set(FINETUNE_SPDLOG finetune_spdlog)
endif()

find_package(yaml-cpp 0.6 QUIET)
if(TARGET yaml-cpp AND NOT TARGET yaml-cpp::yaml-cpp)  # the name before 0.8
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
if(TARGET yaml-cpp)
  finetune_link_archive(yaml-cpp yaml-cpp)
elseif(TARGET yaml-cpp::yaml-cpp)
  finetune_link_archive(yaml-cpp::yaml-cpp yaml-cpp)
else()
  fetch_yaml_cpp()
endif()

# None of these three ships a CMake package everywhere; a header and a library are enough.
find_path(utf8proc_INCLUDE_DIR utf8proc.h)
find_library(utf8proc_LIBRARY utf8proc)
if(utf8proc_INCLUDE_DIR AND utf8proc_LIBRARY)
  add_library(utf8proc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(utf8proc::utf8proc PROPERTIES
    IMPORTED_LOCATION "${utf8proc_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${utf8proc_INCLUDE_DIR}")
  finetune_link_archive(utf8proc::utf8proc utf8proc)
else()
  fetch_utf8proc()
endif()

# The archive where there is one, so that the binary runs where the library is not installed.
find_path(pcre2_INCLUDE_DIR pcre2.h)
find_library(pcre2_LIBRARY NAMES libpcre2-8.a pcre2-8)
if(pcre2_INCLUDE_DIR AND pcre2_LIBRARY)
  add_library(pcre2::pcre2 UNKNOWN IMPORTED)
  set_target_properties(pcre2::pcre2 PROPERTIES
    IMPORTED_LOCATION "${pcre2_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${pcre2_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8)
else()
  fetch_pcre2()
endif()

find_path(xxhash_INCLUDE_DIR xxhash.h)
find_library(xxhash_LIBRARY xxhash)
if(xxhash_INCLUDE_DIR AND xxhash_LIBRARY)
  add_library(xxHash::xxhash UNKNOWN IMPORTED)
  set_target_properties(xxHash::xxhash PROPERTIES
    IMPORTED_LOCATION "${xxhash_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${xxhash_INCLUDE_DIR}")
  finetune_link_archive(xxHash::xxhash xxhash)
else()
  fetch_xxhash()
endif()

find_package(ZLIB REQUIRED)
finetune_link_archive(ZLIB::ZLIB z)
find_path(zstd_INCLUDE_DIR zstd.h REQUIRED)
find_library(zstd_LIBRARY zstd REQUIRED)
add_library(zstd::zstd UNKNOWN IMPORTED)
set_target_properties(zstd::zstd PROPERTIES
  IMPORTED_LOCATION "${zstd_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${zstd_INCLUDE_DIR}")
finetune_link_archive(zstd::zstd zstd)

# Joins processes. libtorch has the library without its headers; without them one process trains.
find_path(gloo_INCLUDE_DIR gloo/transport/device.h)
if(gloo_INCLUDE_DIR AND NOT DEFINED FINETUNE_HAS_GLOO)
  # Headers of another year may not fit this torch.
  include(CheckCXXSourceCompiles)
  get_target_property(CMAKE_REQUIRED_INCLUDES TorchWheel::torch INTERFACE_INCLUDE_DIRECTORIES)
  list(APPEND CMAKE_REQUIRED_INCLUDES ${gloo_INCLUDE_DIR})
  set(CMAKE_REQUIRED_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D_GLOO)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  check_cxx_source_compiles(
    "#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>\nvoid f() {}" FINETUNE_HAS_GLOO)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_DEFINITIONS)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
endif()

include(Nccl)

include(SentencePiece)

if(FINETUNE_BUILD_TESTS)
  find_package(GTest 1.11 QUIET)
  if(NOT TARGET GTest::gmock)
    fetch_googletest()
  endif()
endif()
