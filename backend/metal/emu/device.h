// The emulated device, as its tests see it.
#pragma once
#include <stddef.h>

// What a test may set. All zero is a device without peculiarities.
extern struct metalemu_settings {
  int absent;         // there is no device
  int discrete;       // it has memory of its own
  int family;         // 0 for the newest
  int eager;          // commands run when they are committed, not when somebody waits
  int fail_after;     // the dispatch of this number from now on fails
  char fail_kernel[64]; // dispatches of this kernel fail
  size_t max_buffer;  // longest buffer
  size_t max_threads; // most threads of a threadgroup
} metalemu_settings;

// What happened since the program began.
extern struct metalemu_counters {
  long commands, commits, waits, dispatches;
  long in_place; // buffers made of memory of others
  long objects;  // buffers that are alive
} metalemu_counters;

// metalemu_compile compiles a source to a library of the scheduler's, or returns null with a text that the caller frees.
void *metalemu_compile(char *source, char **error);
