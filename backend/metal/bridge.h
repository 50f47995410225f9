// What the device does in Objective-C itself: darwinkit has no MTLCreateSystemDefaultDevice, its methods that are given a
// Metal object panic, and a message through it costs a microsecond, which a step of hundreds of dispatches would feel.
#pragma once
#include <stdint.h>

enum { METAL_BUFFERS = 14, METAL_ARGS = 64, METAL_SHARED = 2 };

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

// metal_default_device returns the device, which the caller owns, or null.
void *metal_default_device(void);

// metal_encode encodes dispatches. It returns null, or why Metal refused, which the caller frees.
char *metal_encode(void *encoder, const metal_dispatch *dispatches, int n);
