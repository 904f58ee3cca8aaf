# Warnings for the project's sources; third-party includes are SYSTEM so that these can be strict.
set(FINETUNE_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                      -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlaps in std::string's operator+ that are not there (its bug 105651).
  list(APPEND FINETUNE_WARNINGS -Wno-restrict)
endif()
if(FINETUNE_WERROR)
  list(APPEND FINETUNE_WARNINGS -Werror)
endif()

add_compile_options(-fstack-protector-strong)
add_link_options(-Wl,-z,relro,-z,now)

# Paths below the sources count by their rest: another checkout finds what this one compiled, and
# messages of failed checks name "src/...".
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
find_program(FINETUNE_CCACHE_PROGRAM ccache)
if(FINETUNE_CCACHE AND FINETUNE_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                  ${FINETUNE_CCACHE_PROGRAM})
endif()

if(FINETUNE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=thread)
elseif(FINETUNE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()

# Which lines the tests reach (scripts/ci/coverage).
if(FINETUNE_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_compile_definitions(FINETUNE_COVERAGE)
  add_link_options(--coverage)
endif()

if(FINETUNE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FINETUNE_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address -g1)
  add_link_options(-fsanitize=address)
endif()
