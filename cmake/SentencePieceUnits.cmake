# Included by sentencepiece's own project: compiles its sources as a few units, which takes
# half of the time. Its protobuf-lite leaves the macros of port_def.inc behind.
set(_after_include [[
#ifdef PROTOBUF_NAMESPACE
#include <google/protobuf/port_undef.inc>
#endif]])
cmake_language(DEFER CALL set_target_properties sentencepiece-static PROPERTIES
               UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 20
               UNITY_BUILD_CODE_AFTER_INCLUDE "${_after_include}")
cmake_language(DEFER CALL set_target_properties sentencepiece_train-static PROPERTIES
               UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
