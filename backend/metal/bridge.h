// What is said to Metal, in Objective-C. Objects are given and taken as pointers. Those that a function returns belong to the
// caller, who lets go of them with metal_release; texts too, with free. No function lets an exception of Metal's out: it
// becomes the text of a failure.
#pragma once
#include <stdint.h>

// METAL_FAMILY is MTLGPUFamilyApple7, the M1's: the first whose simdgroups multiply matrices.
enum { METAL_BUFFERS = 14, METAL_ARGS = 64, METAL_SHARED = 2, METAL_FAMILY = 1007 };

// metal_device_facts is what the device says of itself.
typedef struct {
  char *name;
  uint64_t max_buffer; // bytes of the longest buffer
  int32_t apple7;      // it is of METAL_FAMILY or a later one
  int32_t unified;     // its memory is the host's
} metal_device_facts;

// metal_dispatch is one dispatch. Buffers are bound to the indices from 0 on, and args to the next.
typedef struct {
  void *pipeline;
  void *buffer[METAL_BUFFERS];
  uint64_t offset[METAL_BUFFERS];
  uint32_t buffers;
  uint32_t bytes; // of args
  uint8_t args[METAL_ARGS];
  uint32_t groups[3];
  uint32_t threads[3];
  uint32_t shared[METAL_SHARED]; // bytes of threadgroup memory
  uint32_t barrier;              // what was encoded before has to be done first
} metal_dispatch;

// metal_default_device returns the machine's device and its facts, or null.
void *metal_default_device(metal_device_facts *facts);
void *metal_new_queue(void *device);

// metal_new_library compiles a source, without fast math: rounding is part of the results' definition. It returns null and
// the compiler's text for one that does not compile.
void *metal_new_library(void *device, const char *source, char **failure);

// metal_new_pipeline returns a kernel, ready to run, and how many threads its threadgroups may have. It returns null for a
// kernel that is not in the library, and then no text, or that Metal refuses.
void *metal_new_pipeline(void *device, void *library, const char *kernel, uint64_t *max_threads, char **failure);

// metal_new_buffer returns a buffer and where the host finds its contents, or null if there is no memory.
void *metal_new_buffer(void *device, uint64_t size, void **contents);

// metal_new_buffer_of returns a buffer of whole pages that are there already, which it does not copy, or null.
void *metal_new_buffer_of(void *device, uint64_t address, uint64_t size);

// metal_commit hands dispatches to the device as a command buffer, which it returns, or null and why Metal refused.
void *metal_commit(void *queue, const metal_dispatch *dispatches, int n, char **failure);

// metal_finish waits for a command buffer and lets go of it. It returns null, or why the commands failed.
char *metal_finish(void *commands);

// metal_release lets go of an object; null is none.
void metal_release(void *object);
