// How the emulated device runs kernels.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { METALEMU_FORWARD, METALEMU_REVERSE, METALEMU_RANDOM };
enum { METALEMU_BUFFERS = 31, METALEMU_SHARED = 8, METALEMU_ARENA = 48 << 10 };

#ifdef __cplusplus
extern "C" {
#endif

// In which order threads run: forward, backward, or one simdgroup ahead of the others, chosen by dice.
void metalemu_set_order(int order, uint64_t seed);

// A compiled library of kernels, or null with the reason.
const void *metalemu_load(const char *path, const char **error);
const void *metalemu_find(const void *library, const char *name);

// metalemu_run runs a dispatch to its end and returns null or what went wrong. Limit is the threadgroup memory that a group may have.
const char *metalemu_run(const void *kernel, const uint32_t groups[3], const uint32_t threads[3], void *const *buffers,
                         const size_t *shared_sizes, size_t limit);

#ifdef __cplusplus
}
#endif
