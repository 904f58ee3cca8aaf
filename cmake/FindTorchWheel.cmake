# Finds libtorch inside the Python package torch and imports its libraries by path.
#
# find_package(Torch) of a CUDA wheel stops without a CUDA toolkit; importing the shared objects
# needs none. The package is located without importing it (importing takes seconds).
#
# Input:  FINETUNE_PYTHON          interpreter whose torch is used (default: python3 on PATH)
#         FINETUNE_TORCH_DIR       the folder site-packages/torch itself, instead
# Output: TorchWheel::torch        imported target
#         TorchWheel::openmp       what sources with at::parallel_for need besides
#         TorchWheel::cuda         libtorch_cuda and libc10_cuda, where they are there
#         TorchWheel_VERSION, TorchWheel_DIRECTORY, TorchWheel_CUDA (ON when libtorch_cuda is there)

set(FINETUNE_PYTHON "" CACHE FILEPATH "Python interpreter whose torch is used")
set(FINETUNE_TORCH_DIR "" CACHE PATH "Folder of the Python package torch")
set(TorchWheel_MINIMUM 2.11)

if(FINETUNE_TORCH_DIR)
  set(TorchWheel_DIRECTORY "${FINETUNE_TORCH_DIR}")
else()
  if(FINETUNE_PYTHON)
    set(_torch_python "${FINETUNE_PYTHON}")
  else()
    find_program(_torch_python NAMES python3 python NO_CACHE)
  endif()
  if(_torch_python)
    execute_process(
      COMMAND "${_torch_python}" -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE TorchWheel_DIRECTORY OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()

set(_torch_advice "install it with '${_torch_python} -m pip install torch', or name another interpreter with -DFINETUNE_PYTHON=/path/to/python3 (scripts/build does all of this by itself)")
if(NOT TorchWheel_DIRECTORY OR NOT EXISTS "${TorchWheel_DIRECTORY}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No Python package torch was found by '${_torch_python}': ${_torch_advice}.")
endif()

file(STRINGS "${TorchWheel_DIRECTORY}/version.py" _torch_version_line REGEX "^__version__ *=")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^'\"]*" TorchWheel_VERSION "${_torch_version_line}")
if(TorchWheel_VERSION VERSION_LESS TorchWheel_MINIMUM)
  message(FATAL_ERROR "torch ${TorchWheel_VERSION} in ${TorchWheel_DIRECTORY} is older than ${TorchWheel_MINIMUM}: ${_torch_advice}.")
endif()

# Another torch in the same place: CMake runs again by itself.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${TorchWheel_DIRECTORY}/version.py")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel
  REQUIRED_VARS TorchWheel_DIRECTORY VERSION_VAR TorchWheel_VERSION)

if(NOT TARGET TorchWheel::torch)
  set(_torch_lib "${TorchWheel_DIRECTORY}/lib")
  set(_torch_link "${_torch_lib}/libtorch.so" "${_torch_lib}/libtorch_cpu.so" "${_torch_lib}/libc10.so")
  set(TorchWheel_CUDA OFF)
  if(EXISTS "${_torch_lib}/libtorch_cuda.so")
    set(TorchWheel_CUDA ON)
    add_library(TorchWheel::cuda INTERFACE IMPORTED)
    target_link_libraries(TorchWheel::cuda INTERFACE
      "${_torch_lib}/libtorch_cuda.so" "${_torch_lib}/libc10_cuda.so")
  endif()
  # Read, never assumed: wheels before 2.7 were built with the old string layout.
  set(_torch_abi 1)
  if(EXISTS "${TorchWheel_DIRECTORY}/share/cmake/Torch/TorchConfig.cmake")
    file(STRINGS "${TorchWheel_DIRECTORY}/share/cmake/Torch/TorchConfig.cmake" _torch_abi_line
         REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
    if(_torch_abi_line MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
      set(_torch_abi 0)
    endif()
  endif()
  if(_torch_abi EQUAL 0)
    message(FATAL_ERROR "torch ${TorchWheel_VERSION} uses the old C++ string layout; ${_torch_advice}.")
  endif()

  add_library(TorchWheel::torch INTERFACE IMPORTED)
  set_target_properties(TorchWheel::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${TorchWheel_DIRECTORY}/include;${TorchWheel_DIRECTORY}/include/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
      "${TorchWheel_DIRECTORY}/include;${TorchWheel_DIRECTORY}/include/torch/csrc/api/include")
  # libtorch.so, a stub that no symbol refers to, loads libtorch_cuda in a CUDA build: linked with
  # --no-as-needed, one binary sees the GPUs of a CUDA build and runs with the CPU build too.
  # CMake puts the folder of the libraries into the RUNPATH of the build folder's binaries alone.
  # Each source names the operators that it calls (<ATen/ops/...>) and parses no other.
  target_compile_definitions(TorchWheel::torch INTERFACE AT_PER_OPERATOR_HEADERS)
  target_link_options(TorchWheel::torch INTERFACE
    "LINKER:--no-as-needed" "LINKER:-rpath-link,${_torch_lib}"
    # A CUDA build is linked on machines without NVIDIA's own libraries, too.
    "LINKER:--allow-shlib-undefined")
  target_link_libraries(TorchWheel::torch INTERFACE ${_torch_link})

  # at::parallel_for is a template that runs on one thread wherever it is compiled without OpenMP.
  # The runtime has to be torch's own, because a second one would start its own threads; clang's calls
  # are for another one.
  add_library(TorchWheel::openmp INTERFACE IMPORTED)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    file(GLOB _torch_gomp "${_torch_lib}/libgomp*.so*")
    if(NOT _torch_gomp)
      set(_torch_gomp gomp)
    endif()
    target_compile_options(TorchWheel::openmp INTERFACE -fopenmp)
    target_link_libraries(TorchWheel::openmp INTERFACE ${_torch_gomp})
  endif()
endif()
