# finetune_area(NAME [TORCH] [DEPENDS area...] [LIBRARIES target...]
#               [PRIVATE_LIBRARIES target...])
#
# One static library per folder of src/: every source in it and in its folders, private headers beside the sources,
# the public ones in include/finetune/NAME. Without TORCH a stray torch include does not compile.
function(finetune_area name)
  cmake_parse_arguments(AREA "TORCH" "" "DEPENDS;PRIVATE_LIBRARIES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$|/src/task/[a-z_]+/keys\\.cpp$")
  if(NOT sources)
    add_library(finetune_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(finetune_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_compile_options(finetune_${name} PRIVATE ${FINETUNE_WARNINGS})
    if(NOT AREA_TORCH)
      target_compile_options(finetune_${name} PRIVATE -Wconversion)
    endif()
    target_include_directories(finetune_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(finetune_${name} PRIVATE ${AREA_PRIVATE_LIBRARIES})
  endif()
  target_include_directories(finetune_${name} ${scope} ${CMAKE_SOURCE_DIR}/include)
  foreach(area IN LISTS AREA_DEPENDS)
    target_link_libraries(finetune_${name} ${scope} finetune_${area})
  endforeach()
  target_link_libraries(finetune_${name} ${scope} ${AREA_LIBRARIES})
  if(AREA_TORCH)
    target_link_libraries(finetune_${name} ${scope} TorchWheel::torch)
  endif()
endfunction()

# Tests' own code runs for a blink, and most of their compile time is what is spent on it. Not
# where a precompiled header of other flags is used.
function(finetune_compile_tests_fast target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# finetune_area_tests(NAME LABEL): every tests/NAME/*_test.cpp in one executable, one ctest entry.
function(finetune_area_tests name label)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(finetune_${name}_tests ${sources})
  target_include_directories(finetune_${name}_tests
    PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${name} ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(finetune_${name}_tests PRIVATE ${FINETUNE_WARNINGS})
  finetune_compile_tests_fast(finetune_${name}_tests)
  target_compile_definitions(finetune_${name}_tests PRIVATE
    FINETUNE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(finetune_${name}_tests PRIVATE finetune_${name} ${ARGN}
                        GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND finetune_${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS "${label}")
endfunction()

# The names of the test suites in some sources, in the order in which they stand there.
function(finetune_suites result)
  set(suites "")
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} lines REGEX "^TEST(_F|_P)?\\(")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^TEST(_F|_P)?\\(([A-Za-z0-9]+).*" "\\2" suite "${line}")
      list(APPEND suites ${suite})
    endforeach()
    # A new suite in an old file: CMake runs again.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  endforeach()
  list(REMOVE_DUPLICATES suites)
  set(${result} ${suites} PARENT_SCOPE)
endfunction()
