//go:build darwin || metalemu

#import <Metal/Metal.h>
#include <string.h>
#include "bridge.h"

void *metal_default_device(void) { return (void *)MTLCreateSystemDefaultDevice(); }

char *metal_encode(void *encoder, const metal_dispatch *dispatches, int n) {
  id<MTLComputeCommandEncoder> e = (id<MTLComputeCommandEncoder>)encoder;
  @try {
    for (const metal_dispatch *d = dispatches; d < dispatches + n; d++) {
      if (d->barrier) [e memoryBarrierWithScope:MTLBarrierScopeBuffers];
      [e setComputePipelineState:(id<MTLComputePipelineState>)d->pipeline];
      for (uint32_t i = 0; i < d->buffers; i++) [e setBuffer:(id<MTLBuffer>)d->buffer[i] offset:d->offset[i] atIndex:i];
      [e setBytes:d->args length:d->bytes atIndex:d->buffers];
      for (uint32_t i = 0; i < METAL_SHARED; i++) {
        if (d->shared[i]) [e setThreadgroupMemoryLength:d->shared[i] atIndex:i];
      }
      [e dispatchThreadgroups:MTLSizeMake(d->groups[0], d->groups[1], d->groups[2])
          threadsPerThreadgroup:MTLSizeMake(d->threads[0], d->threads[1], d->threads[2])];
    }
  } @catch (NSException *x) {
    return strdup([[x reason] UTF8String]);
  }
  return NULL;
}
