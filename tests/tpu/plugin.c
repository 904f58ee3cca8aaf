// SPDX-License-Identifier: MIT
// A PJRT plugin instead of a TPU's library, for tests (docs/tpu.md): programs run on XLA's plugin for
// CPUs, and libtpu's compiler, which needs no TPU, compiles each of them too. Variables:
//   FINETUNE_TPU_CPU       XLA's plugin for CPUs, pjrt_c_api_cpu_plugin.so
//   FINETUNE_TPU_LOG       a file that gets a line for each compiled program
//   FINETUNE_TPU_PROGRAMS  a folder that gets the programs
//   FINETUNE_TPU_COMPILER  libtpu.so; FINETUNE_TPU_TOPOLOGY: what it compiles for, such as v5e:1x1
//   FINETUNE_TPU_FAIL      "create|compile|execute FIRST COUNT MESSAGE": calls that fail, the first is 1
//   FINETUNE_TPU_MEMORY    a file that gets the most bytes of a TPU that were used at once: buffers in
//                          the order of the host's calls, outputs in libtpu's size (XLA pads them on
//                          a TPU), and the temporary memory of the program that runs
//   FINETUNE_TPU_SLOW      seconds that each compilation takes longer
// A line is "program NUMBER SECONDS" and, where libtpu compiled it, " arguments BYTES outputs BYTES
// aliased BYTES temporary BYTES", or " failed MESSAGE".
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
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

// The errors of FINETUNE_TPU_FAIL are errors of XLA's plugin with another message.
enum { kMostFailures = 16 };
static PJRT_Error* planned[kMostFailures];
static int planned_count;
static char planned_text[1024];

static bool is_planned(const PJRT_Error* error) {
  for (int i = 0; i < planned_count; ++i) {
    if (planned[i] == error) return true;
  }
  return false;
}

// Returns NULL where the call shall succeed. `call`: "create", "compile" or "execute", counted in `calls`.
static PJRT_Error* planned_error(const char* call, int* calls) {
  const char* const plan = getenv("FINETUNE_TPU_FAIL");
  char name[16];
  int first = 0, count = 0, end = 0;
  if (plan == NULL || sscanf(plan, "%15s %d %d %n", name, &first, &count, &end) < 3) return NULL;
  if (strcmp(name, call) != 0) return NULL;
  pthread_mutex_lock(&lock);
  const int number = ++*calls;
  PJRT_Error* error = NULL;
  if (number >= first && number < first + count && planned_count < kMostFailures) {
    PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE, .format = "none", .format_size = 4};
    PJRT_Client_Compile_Args wanted = {.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE, .program = &program};
    error = cpu->PJRT_Client_Compile(&wanted);
    planned[planned_count++] = error;
    snprintf(planned_text, sizeof(planned_text), "%s", plan + end);
  }
  pthread_mutex_unlock(&lock);
  return error;
}

static void error_message(PJRT_Error_Message_Args* wanted) {
  cpu->PJRT_Error_Message(wanted);
  if (!is_planned(wanted->error)) return;
  wanted->message = planned_text;
  wanted->message_size = strlen(planned_text);
}
static PJRT_Error* error_code(PJRT_Error_GetCode_Args* wanted) {
  PJRT_Error* const error = cpu->PJRT_Error_GetCode(wanted);
  if (!is_planned(wanted->error)) return error;
  const bool is_memory = strstr(planned_text, "memory") != NULL;
  wanted->code = is_memory ? PJRT_Error_Code_RESOURCE_EXHAUSTED : PJRT_Error_Code_UNAVAILABLE;
  return error;
}

// Bytes of a TPU's memory, by buffer and by executable.
struct memory {
  const void* key;
  long long outputs;    // a buffer's size, or all outputs of an executable
  long long temporary;  // of an executable; of a buffer its size without padding
};
enum { kMostEntries = 1 << 20 };
static struct memory* entries;
static const char kRemoved = 0;
static long long live, live_unpadded, peak;

static struct memory* find(const void* key, bool adds) {
  if (entries == NULL) entries = calloc(kMostEntries, sizeof(struct memory));
  size_t at = ((size_t)key >> 4) * 0x9E3779B97F4A7C15u >> 44;
  struct memory* removed = NULL;
  for (; entries[at].key != NULL; at = (at + 1) % kMostEntries) {
    if (entries[at].key == key) return &entries[at];
    if (entries[at].key == &kRemoved && removed == NULL) removed = &entries[at];
  }
  if (!adds) return NULL;
  struct memory* const found = removed != NULL ? removed : &entries[at];
  *found = (struct memory){.key = key};
  return found;
}
static void add_buffer(const void* buffer, long long bytes, long long unpadded) {
  struct memory* const added = find(buffer, true);
  added->outputs = bytes;
  added->temporary = unpadded;
  live += bytes;
  live_unpadded += unpadded;
}
static void remove_buffer(const void* buffer) {
  struct memory* const found = find(buffer, false);
  if (found == NULL) return;
  live -= found->outputs;
  live_unpadded -= found->temporary;
  found->key = &kRemoved;
}

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
static struct memory compile_for_tpu(const PJRT_Client_Compile_Args* wanted, char* text, size_t size) {
  struct memory used = {0};
  PJRT_Compile_Args compile = {.struct_size = PJRT_Compile_Args_STRUCT_SIZE,
                               .topology = topology,
                               .program = wanted->program,
                               .compile_options = wanted->compile_options,
                               .compile_options_size = wanted->compile_options_size};
  if (failed(tpu->PJRT_Compile(&compile), text, size)) return used;
  PJRT_Executable_GetCompiledMemoryStats_Args memory = {
      .struct_size = PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE,
      .executable = compile.executable};
  if (!failed(tpu->PJRT_Executable_GetCompiledMemoryStats(&memory), text, size)) {
    snprintf(text, size, " arguments %lld outputs %lld aliased %lld temporary %lld",
             (long long)memory.argument_size_in_bytes, (long long)memory.output_size_in_bytes,
             (long long)memory.alias_size_in_bytes, (long long)memory.temp_size_in_bytes);
    used.outputs = memory.output_size_in_bytes;
    used.temporary = memory.temp_size_in_bytes;
  }
  PJRT_Executable_Destroy_Args destroy = {.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                          .executable = compile.executable};
  tpu->PJRT_Executable_Destroy(&destroy);
  return used;
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
  static int calls;
  PJRT_Error* const failure = planned_error("compile", &calls);
  if (failure != NULL) return failure;
  const char* const slow = getenv("FINETUNE_TPU_SLOW");
  if (slow != NULL) usleep((useconds_t)(1e6 * atof(slow)));
  pthread_mutex_lock(&lock);
  const int number = ++programs;
  pthread_mutex_unlock(&lock);
  write_program(wanted->program, number);
  char text[2048] = "";
  struct memory used = {0};
  if (topology != NULL) used = compile_for_tpu(wanted, text, sizeof(text));
  const double start = now();
  PJRT_Error* const error = cpu->PJRT_Client_Compile(wanted);
  if (error == NULL && getenv("FINETUNE_TPU_MEMORY") != NULL) {
    pthread_mutex_lock(&lock);
    struct memory* const entry = find(wanted->executable, true);
    entry->outputs = used.outputs;
    entry->temporary = used.temporary;
    pthread_mutex_unlock(&lock);
  }
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
  static int calls;
  PJRT_Error* const failure = planned_error("create", &calls);
  if (failure != NULL) return failure;
  PJRT_Client_Create_Args without = *wanted;
  without.create_options = NULL;
  without.num_options = 0;
  PJRT_Error* const error = cpu->PJRT_Client_Create(&without);
  wanted->client = without.client;
  return error;
}

static long long size_of(PJRT_Buffer* buffer) {
  PJRT_Buffer_OnDeviceSizeInBytes_Args size = {
      .struct_size = PJRT_Buffer_OnDeviceSizeInBytes_Args_STRUCT_SIZE, .buffer = buffer};
  return cpu->PJRT_Buffer_OnDeviceSizeInBytes(&size) == NULL ? (long long)size.on_device_size_in_bytes : 0;
}

static void count_memory(const PJRT_LoadedExecutable_Execute_Args* run) {
  pthread_mutex_lock(&lock);
  const struct memory* const program = find(run->executable, false);
  PJRT_LoadedExecutable_GetExecutable_Args get = {
      .struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE, .loaded_executable = run->executable};
  size_t outputs = 0;
  if (cpu->PJRT_LoadedExecutable_GetExecutable(&get) == NULL) {
    PJRT_Executable_NumOutputs_Args number = {
        .struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE, .executable = get.executable};
    if (cpu->PJRT_Executable_NumOutputs(&number) == NULL) outputs = number.num_outputs;
    PJRT_Executable_Destroy_Args destroy = {
        .struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE, .executable = get.executable};
    cpu->PJRT_Executable_Destroy(&destroy);
  }
  // Arguments that were given up for the outputs.
  for (size_t i = 0; i < run->num_args; ++i) {
    PJRT_Buffer_IsDeleted_Args is = {.struct_size = PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE,
                                     .buffer = run->argument_lists[0][i]};
    if (cpu->PJRT_Buffer_IsDeleted(&is) == NULL && is.is_deleted) remove_buffer(is.buffer);
  }
  long long unpadded = 0;
  for (size_t i = 0; i < outputs; ++i) unpadded += size_of(run->output_lists[0][i]);
  const double padding = program != NULL && unpadded > 0 && program->outputs > unpadded
                             ? (double)program->outputs / (double)unpadded
                             : 1.0;
  for (size_t i = 0; i < outputs; ++i) {
    PJRT_Buffer* const buffer = run->output_lists[0][i];
    add_buffer(buffer, (long long)(padding * (double)size_of(buffer)), size_of(buffer));
  }
  const long long now_used = live + (program != NULL ? program->temporary : 0);
  if (now_used > peak + (1 << 16)) {
    peak = now_used;
    FILE* const file = fopen(getenv("FINETUNE_TPU_MEMORY"), "w");
    if (file != NULL) {
      fprintf(file, "peak %lld buffers %lld unpadded %lld temporary %lld\n", peak, live, live_unpadded, peak - live);
      fclose(file);
    }
  }
  pthread_mutex_unlock(&lock);
}

static PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* wanted) {
  static int calls;
  PJRT_Error* const failure = planned_error("execute", &calls);
  if (failure != NULL) return failure;
  PJRT_Error* const error = cpu->PJRT_LoadedExecutable_Execute(wanted);
  if (error == NULL && getenv("FINETUNE_TPU_MEMORY") != NULL) count_memory(wanted);
  return error;
}

static void count_new(PJRT_Buffer* buffer) {
  pthread_mutex_lock(&lock);
  add_buffer(buffer, size_of(buffer), size_of(buffer));
  pthread_mutex_unlock(&lock);
}
static void count_gone(const PJRT_Buffer* buffer) {
  pthread_mutex_lock(&lock);
  remove_buffer(buffer);
  pthread_mutex_unlock(&lock);
}

static PJRT_Error* from_host(PJRT_Client_BufferFromHostBuffer_Args* wanted) {
  PJRT_Error* const error = cpu->PJRT_Client_BufferFromHostBuffer(wanted);
  if (error == NULL) count_new(wanted->buffer);
  return error;
}
static PJRT_Error* from_transfer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* wanted) {
  PJRT_Error* const error = cpu->PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(wanted);
  if (error == NULL) count_new(wanted->buffer_out);
  return error;
}
static PJRT_Error* buffer_destroy(PJRT_Buffer_Destroy_Args* wanted) {
  count_gone(wanted->buffer);
  return cpu->PJRT_Buffer_Destroy(wanted);
}
static PJRT_Error* buffer_delete(PJRT_Buffer_Delete_Args* wanted) {
  count_gone(wanted->buffer);
  return cpu->PJRT_Buffer_Delete(wanted);
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
  own->PJRT_LoadedExecutable_Execute = execute;
  if (getenv("FINETUNE_TPU_MEMORY") != NULL) {
    own->PJRT_Client_BufferFromHostBuffer = from_host;
    own->PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer = from_transfer;
    own->PJRT_Buffer_Destroy = buffer_destroy;
    own->PJRT_Buffer_Delete = buffer_delete;
  }
  own->PJRT_Error_Message = error_message;
  own->PJRT_Error_GetCode = error_code;
  return own;
}
