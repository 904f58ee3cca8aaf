# Joins the GPUs of several processes. A CUDA torch has the library and c10d's class over it, whose
# headers want NCCL's and CUDA's: they are in packages next to torch, or in a toolkit. Only the module
# libfinetune_nccl.so is linked with them.
#
# Output: FINETUNE_HAS_NCCL, nccl_INCLUDE_DIRS; FINETUNE_NO_NCCL, why it has none
set(FINETUNE_NO_NCCL "")
set(nccl_INCLUDE_DIRS "")
if(NOT TorchWheel_CUDA)
  set(FINETUNE_NO_NCCL "it was compiled with a CPU build of torch")
elseif(NOT FINETUNE_HAS_GLOO)
  set(FINETUNE_NO_NCCL "it has no Gloo, through which processes meet first")
else()
  file(GLOB _packages "${TorchWheel_DIRECTORY}/../nvidia/*/include")
  set(_missing "")
  # One header of each package: NCCL, run time, its compiler's part, C++ library, and the libraries
  # whose handles torch's own headers name.
  foreach(header nccl.h cuda_runtime_api.h crt/host_config.h nv/target cublas_v2.h cusparse.h
                 cusolverDn.h)
    string(MAKE_C_IDENTIFIER "nccl_${header}_DIR" _directory)
    find_path(${_directory} ${header}
              HINTS ${_packages} PATHS $ENV{CUDA_HOME}/include /usr/local/cuda/include
              PATH_SUFFIXES . cccl)
    mark_as_advanced(${_directory})
    if(${_directory})
      list(APPEND nccl_INCLUDE_DIRS "${${_directory}}")
    else()
      list(APPEND _missing ${header})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES nccl_INCLUDE_DIRS)
  if(_missing)
    string(REPLACE ";" ", " _missing "${_missing}")
    set(FINETUNE_NO_NCCL "headers are missing (${_missing}), which the packages nvidia-cuda-crt and nvidia-cuda-cccl, of CUDA 12 nvidia-cuda-nvcc-cu12 and nvidia-cuda-cccl-cu12, or a CUDA toolkit bring")
  elseif(NOT DEFINED FINETUNE_HAS_NCCL)
    include(CheckCXXSourceCompiles)
    get_target_property(CMAKE_REQUIRED_INCLUDES TorchWheel::torch INTERFACE_INCLUDE_DIRECTORIES)
    list(APPEND CMAKE_REQUIRED_INCLUDES ${nccl_INCLUDE_DIRS})
    set(CMAKE_REQUIRED_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D_NCCL)
    set(CMAKE_REQUIRED_LIBRARIES TorchWheel::torch TorchWheel::cuda)
    check_cxx_source_compiles(
      "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\nint main() { return c10d::getNcclVersion().empty() ? 1 : 0; }"
      FINETUNE_HAS_NCCL)
    unset(CMAKE_REQUIRED_INCLUDES)
    unset(CMAKE_REQUIRED_DEFINITIONS)
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
  if(NOT FINETUNE_NO_NCCL AND NOT FINETUNE_HAS_NCCL)
    set(FINETUNE_NO_NCCL "this torch's ProcessGroupNCCL does not compile with the headers of NCCL and CUDA that were found")
  endif()
endif()
if(FINETUNE_NO_NCCL)
  set(FINETUNE_HAS_NCCL OFF)
  if(TorchWheel_CUDA)
    message(STATUS "Without NCCL, GPUs of several processes meet in host memory: ${FINETUNE_NO_NCCL}")
  endif()
endif()
