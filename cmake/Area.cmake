# finetune_area(NAME [TORCH] [UNITS count] [DEPENDS area...] [LIBRARIES target...]
#               [PRIVATE_LIBRARIES target...])
#
# One static library per folder of src/: every source in it and in its folders, private headers next to the sources,
# the public ones in include/finetune/NAME. Without TORCH a stray torch include does not compile.
# UNITS: the sources are compiled as at most this number of units, each below 20 CPU seconds (measure with
# scripts/bench/build_time.py); without it, each source alone.
function(finetune_area name)
  cmake_parse_arguments(AREA "TORCH" "UNITS" "DEPENDS;PRIVATE_LIBRARIES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$|_module\\.cpp$|/src/task/[a-z_]+/keys\\.cpp$")
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
    if(AREA_UNITS)  # once the options of single sources are known
      cmake_language(EVAL CODE
        "cmake_language(DEFER CALL finetune_compile_as_units finetune_${name} ${AREA_UNITS})")
    endif()
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

# Headers take most of the time of most sources; sources that are compiled together read them once.
# Names in anonymous namespaces must therefore be distinct within an area. CMake leaves out sources
# that have their own compile options or definitions.
function(finetune_compile_as_units target units)
  if(NOT FINETUNE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(count 0)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(NOT options AND NOT definitions)
      math(EXPR count "${count} + 1")
    endif()
  endforeach()
  math(EXPR batch "(${count} + ${units} - 1) / ${units}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  # Of a header's class whose member has a type of an anonymous namespace: here that is a source.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# Executables of tests are linked by mold, where it is there and the compiler knows it.
include(CheckLinkerFlag)
find_program(FINETUNE_MOLD mold)
if(FINETUNE_MOLD)
  check_linker_flag(CXX -fuse-ld=mold FINETUNE_LINKS_WITH_MOLD)
endif()

# Tests' own code runs for a blink, and most of their compile time is what is spent on it.
function(finetune_compile_tests_fast target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(FINETUNE_LINKS_WITH_MOLD)
    target_link_options(${target} PRIVATE -fuse-ld=mold)
  endif()
endfunction()

# finetune_test(NAME NAME COMMAND WORD...): add_test() of a command whose time is stored in
# Testing/times.txt.
function(finetune_test)
  cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME" "COMMAND")
  list(GET test_COMMAND 0 program)
  if(TARGET ${program})
    list(REMOVE_AT test_COMMAND 0)
    list(PREPEND test_COMMAND $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${test_NAME}
           COMMAND finetune_timed ${CMAKE_BINARY_DIR}/Testing/times.txt ${test_NAME}
                   ${test_COMMAND})
endfunction()

# finetune_area_tests(NAME LABEL): every tests/NAME/*_test.cpp in one executable, one ctest entry.
function(finetune_area_tests name label)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(finetune_${name}_tests ${sources})
  target_include_directories(finetune_${name}_tests
    PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${name})
  target_compile_options(finetune_${name}_tests PRIVATE ${FINETUNE_WARNINGS})
  finetune_compile_tests_fast(finetune_${name}_tests)
  list(LENGTH sources count)
  math(EXPR units "(${count} + 9) / 10")
  finetune_compile_as_units(finetune_${name}_tests ${units})
  target_link_libraries(finetune_${name}_tests PRIVATE finetune_${name} ${ARGN}
                        finetune_test_support)
  finetune_test(NAME ${name} COMMAND finetune_${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS "${label}")
endfunction()

# The names of the test suites in some sources, in their order.
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
