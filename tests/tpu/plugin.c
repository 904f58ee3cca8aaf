// SPDX-License-Identifier: MIT
// A PJRT plugin instead of a TPU's library, for tests (docs/tpu.md): programs run on XLA's plugin for
// CPUs, and libtpu's compiler, which needs no TPU, compiles each of them too. Variables:
//   FINETUNE_TPU_CPU       XLA's plugin for CPUs, pjrt_c_api_cpu_plugin.so
//   FINETUNE_TPU_LOG       a file that gets a line for each compiled program
//   FINETUNE_TPU_PROGRAMS  a folder that gets the programs
//   FINETUNE_TPU_COMPILER  libtpu.so; FINETUNE_TPU_TOPOLOGY: what it compiles for, such as v5e:1x1
// A line is "program NUMBER SECONDS" and, where libtpu compiled it, " arguments BYTES outputs BYTES
// aliased BYTES temporary BYTES", or " failed MESSAGE".
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pjrt_c_api.h"

static const PJRT_Api* cpu;
static const PJRT_Api* tpu;
static PJRT_TopologyDescription* topology;
static PJRT_Api* own;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int programs;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static const PJRT_Api* load(const char* path) {
  void* const library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "plugin.c: %s\n", path == NULL ? "FINETUNE_TPU_CPU is not set" : dlerror());
    return NULL;
  }
  const PJRT_Api* (*get)(void) = (const PJRT_Api* (*)(void))dlsym(library, "GetPjrtApi");
  return get == NULL ? NULL : get();
}

// Returns whether a call of libtpu failed, with its message without line ends.
static bool failed(PJRT_Error* error, char* text, size_t size) {
  if (error == NULL) return false;
  PJRT_Error_Message_Args message = {.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = error};
  tpu->PJRT_Error_Message(&message);
  snprintf(text, size, " failed %.*s", (int)message.message_size, message.message);
  for (char* at = text; *at != '\0'; ++at) {
    if (*at == '\n') *at = ' ';
  }
  PJRT_Error_Destroy_Args destroy = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE, .error = error};
  tpu->PJRT_Error_Destroy(&destroy);
  return true;
}

// Compiles a program for the topology and describes the result.
static void compile_for_tpu(const PJRT_Client_Compile_Args* wanted, char* text, size_t size) {
  PJRT_Compile_Args compile = {.struct_size = PJRT_Compile_Args_STRUCT_SIZE,
                               .topology = topology,
                               .program = wanted->program,
                               .compile_options = wanted->compile_options,
                               .compile_options_size = wanted->compile_options_size};
  if (failed(tpu->PJRT_Compile(&compile), text, size)) return;
  PJRT_Executable_GetCompiledMemoryStats_Args memory = {
      .struct_size = PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE,
      .executable = compile.executable};
  if (!failed(tpu->PJRT_Executable_GetCompiledMemoryStats(&memory), text, size)) {
    snprintf(text, size, " arguments %lld outputs %lld aliased %lld temporary %lld",
             (long long)memory.argument_size_in_bytes, (long long)memory.output_size_in_bytes,
             (long long)memory.alias_size_in_bytes, (long long)memory.temp_size_in_bytes);
  }
  PJRT_Executable_Destroy_Args destroy = {.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                          .executable = compile.executable};
  tpu->PJRT_Executable_Destroy(&destroy);
}

static void write_program(const PJRT_Program* program, int number) {
  const char* const folder = getenv("FINETUNE_TPU_PROGRAMS");
  if (folder == NULL) return;
  char path[4096];
  snprintf(path, sizeof(path), "%s/%d-%d.%.*s", folder, (int)getpid(), number, (int)program->format_size,
           program->format);
  FILE* const file = fopen(path, "wb");
  if (file == NULL) return;
  fwrite(program->code, 1, program->code_size, file);
  fclose(file);
}

static PJRT_Error* compile(PJRT_Client_Compile_Args* wanted) {
  pthread_mutex_lock(&lock);
  const int number = ++programs;
  pthread_mutex_unlock(&lock);
  write_program(wanted->program, number);
  char text[2048] = "";
  if (topology != NULL) compile_for_tpu(wanted, text, sizeof(text));
  const double start = now();
  PJRT_Error* const error = cpu->PJRT_Client_Compile(wanted);
  const char* const log = getenv("FINETUNE_TPU_LOG");
  FILE* const file = log == NULL ? NULL : fopen(log, "a");
  if (file != NULL) {
    fprintf(file, "program %d %.3f%s\n", number, now() - start, text);
    fclose(file);
  }
  return error;
}

// A CPU knows none of a TPU's options.
static PJRT_Error* create(PJRT_Client_Create_Args* wanted) {
  PJRT_Client_Create_Args without = *wanted;
  without.create_options = NULL;
  without.num_options = 0;
  PJRT_Error* const error = cpu->PJRT_Client_Create(&without);
  wanted->client = without.client;
  return error;
}

static void load_compiler(void) {
  const char* const path = getenv("FINETUNE_TPU_COMPILER");
  const char* const name = getenv("FINETUNE_TPU_TOPOLOGY");
  if (path == NULL || name == NULL || (tpu = load(path)) == NULL) return;
  char text[2048];
  PJRT_Plugin_Initialize_Args initialize = {.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE};
  PJRT_TopologyDescription_Create_Args description = {
      .struct_size = PJRT_TopologyDescription_Create_Args_STRUCT_SIZE,
      .topology_name = name,
      .topology_name_size = strlen(name)};
  if (failed(tpu->PJRT_Plugin_Initialize(&initialize), text, sizeof(text)) ||
      failed(tpu->PJRT_TopologyDescription_Create(&description), text, sizeof(text))) {
    fprintf(stderr, "plugin.c: libtpu:%s\n", text);
    exit(1);
  }
  topology = description.topology;
}

const PJRT_Api* GetPjrtApi(void) {
  if (own != NULL) return own;
  if ((cpu = load(getenv("FINETUNE_TPU_CPU"))) == NULL) return NULL;
  load_compiler();
  // The table may be longer than that of the header.
  own = malloc(cpu->struct_size);
  memcpy(own, cpu, cpu->struct_size);
  own->PJRT_Client_Create = create;
  own->PJRT_Client_Compile = compile;
  return own;
}
