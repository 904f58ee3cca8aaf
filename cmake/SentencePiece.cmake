# SentencePiece::sentencepiece and SentencePiece::train, static, built out of the source package that
# scripts/fetch_sentencepiece puts into .deps/. It is compiled there once per compiler, beside our
# own sources in the same build, and survives the removal of the build folder.
include(ExternalProject)

set(_sentencepiece_root ${CMAKE_SOURCE_DIR}/.deps/sentencepiece-0.2.1)
if(NOT EXISTS ${_sentencepiece_root}/sentencepiece/src/CMakeLists.txt)
  message(STATUS "Fetching the source package of sentencepiece")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env "FINETUNE_PYTHON=${_torch_python}"
            "FINETUNE_ARCHIVES=${FINETUNE_ARCHIVES}" ${CMAKE_SOURCE_DIR}/scripts/fetch_sentencepiece
    RESULT_VARIABLE _sentencepiece_result ERROR_VARIABLE _sentencepiece_error)
  if(NOT _sentencepiece_result EQUAL 0)
    message(FATAL_ERROR "${_sentencepiece_error}")
  endif()
endif()

set(_sentencepiece_flags "-w -fPIC")
set(_sentencepiece_build ${_sentencepiece_root}/build-${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION})
if(FINETUNE_SANITIZE STREQUAL "thread")
  string(APPEND _sentencepiece_flags " -fsanitize=thread -fno-omit-frame-pointer")
  string(APPEND _sentencepiece_build "-thread")
elseif(FINETUNE_SANITIZE OR FINETUNE_FUZZ)
  # Containers cross the border: half of them instrumented gives false reports.
  string(APPEND _sentencepiece_flags " -fsanitize=address -fno-omit-frame-pointer")
  string(APPEND _sentencepiece_build "-sanitize")
endif()
set(_sentencepiece_library ${_sentencepiece_build}/src/libsentencepiece.a)
set(_sentencepiece_trainer ${_sentencepiece_build}/src/libsentencepiece_train.a)

# CMake's cache there remembers where the sources were. A checkout that was moved, or whose .deps is
# another one's, starts afresh; one that is reached by a link has the same real path.
if(EXISTS ${_sentencepiece_build}/CMakeCache.txt)
  file(STRINGS ${_sentencepiece_build}/CMakeCache.txt _sentencepiece_home
       REGEX "^CMAKE_HOME_DIRECTORY:" LIMIT_COUNT 1)
  string(REGEX REPLACE "^[^=]*=" "" _sentencepiece_home "${_sentencepiece_home}")
  get_filename_component(_sentencepiece_home "${_sentencepiece_home}" REALPATH)
  get_filename_component(_sentencepiece_source ${_sentencepiece_root}/sentencepiece REALPATH)
  if(NOT _sentencepiece_home STREQUAL _sentencepiece_source)
    message(STATUS "Building sentencepiece again: its build folder was made in '${_sentencepiece_home}'")
    file(REMOVE_RECURSE ${_sentencepiece_build} ${CMAKE_BINARY_DIR}/sentencepiece-stamp)
  endif()
endif()

# In its own folder, because the folder of the original has headers with names such as util.h.
file(COPY ${_sentencepiece_root}/sentencepiece/src/sentencepiece_processor.h
          ${_sentencepiece_root}/sentencepiece/src/sentencepiece_trainer.h
     DESTINATION ${_sentencepiece_root}/include)

# Several build folders may share the one in .deps: one of them builds at a time.
file(MAKE_DIRECTORY ${_sentencepiece_build})
find_program(FINETUNE_FLOCK flock)
set(_sentencepiece_lock)
if(FINETUNE_FLOCK)
  set(_sentencepiece_lock ${FINETUNE_FLOCK} ${_sentencepiece_build}/lock)
endif()

# Not the launcher of this build folder: the build in .deps serves others too.
set(_sentencepiece_launcher)
if(FINETUNE_CCACHE AND FINETUNE_CCACHE_PROGRAM)
  set(_sentencepiece_launcher ${FINETUNE_CCACHE_PROGRAM})
endif()

ExternalProject_Add(sentencepiece_source_build
  SOURCE_DIR ${_sentencepiece_root}/sentencepiece
  BINARY_DIR ${_sentencepiece_build}
  STAMP_DIR ${CMAKE_BINARY_DIR}/sentencepiece-stamp
  TMP_DIR ${CMAKE_BINARY_DIR}/sentencepiece-tmp
  DOWNLOAD_COMMAND "" INSTALL_COMMAND ""
  CONFIGURE_COMMAND ${_sentencepiece_lock} ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR}
    -S ${_sentencepiece_root}/sentencepiece -B ${_sentencepiece_build}
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${_sentencepiece_launcher}
    -DCMAKE_CXX_FLAGS=${_sentencepiece_flags} -DCMAKE_POLICY_VERSION_MINIMUM=3.5
    -DCMAKE_PROJECT_INCLUDE=${CMAKE_CURRENT_LIST_DIR}/SentencePieceUnits.cmake
    -DSPM_ENABLE_SHARED=OFF -DSPM_ENABLE_TCMALLOC=OFF --log-level=WARNING -Wno-dev
  BUILD_COMMAND ${_sentencepiece_lock} ${CMAKE_COMMAND} --build ${_sentencepiece_build}
    --target sentencepiece-static sentencepiece_train-static
  BUILD_BYPRODUCTS ${_sentencepiece_library} ${_sentencepiece_trainer})

add_library(SentencePiece::sentencepiece STATIC IMPORTED GLOBAL)
add_dependencies(SentencePiece::sentencepiece sentencepiece_source_build)
set_target_properties(SentencePiece::sentencepiece PROPERTIES
  IMPORTED_LOCATION ${_sentencepiece_library}
  INTERFACE_INCLUDE_DIRECTORIES ${_sentencepiece_root}/include
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${_sentencepiece_root}/include
  INTERFACE_LINK_LIBRARIES Threads::Threads)

add_library(SentencePiece::train STATIC IMPORTED GLOBAL)
add_dependencies(SentencePiece::train sentencepiece_source_build)
set_target_properties(SentencePiece::train PROPERTIES
  IMPORTED_LOCATION ${_sentencepiece_trainer}
  INTERFACE_LINK_LIBRARIES SentencePiece::sentencepiece)
