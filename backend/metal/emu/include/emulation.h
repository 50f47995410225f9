// What compiled kernels and the emulator share. A thread of a kernel is a fiber; it lets others run only where it has to
// wait for them: at barriers, and at what the lanes of a simdgroup do together.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace emu {

struct Group {
  uint32_t at[3], threads[3], groups[3];
};

struct Thread {
  uint32_t at[3]; // in the threadgroup
  uint32_t index; // in the threadgroup
  uint32_t lane;
  size_t shared; // bytes of threadgroup memory that the thread has passed declarations of
  const Group *group;
  // The scheduler's.
  void *stack;
  int state;
  uint32_t collectives;
};

// Services are what kernels call.
struct Services {
  Thread **current;
  void (*barrier)();
  const void *(*gather)(const void *mine, size_t size); // every lane gives size bytes and gets those of all lanes
  void *(*shared)(size_t size);                         // threadgroup memory, the same for all threads of a group
  void (*fail)(const char *text);                       // ends the kernel
};

// Kernel is an entry of a compiled library.
struct Kernel {
  const char *name;
  void (*call)(void *const *buffers, void *const *shared);
  uint32_t buffers; // bit i: buffer i has to be bound
  uint32_t shared;  // likewise for threadgroup memory
};

struct Library {
  void (*bind)(const Services *);
  const Kernel *kernels;
  size_t count;
};

} // namespace emu
