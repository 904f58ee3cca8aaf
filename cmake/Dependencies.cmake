# Every package that is linked, found first and fetched (pinned, hashed) only where it is missing.
# Reasons, licences and versions: src/README.md.
include(FetchContent)

find_package(Threads REQUIRED)
find_package(TorchWheel REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
if(TARGET yaml-cpp AND NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
if(FINETUNE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
