//go:build darwin || metalemu

#import <Metal/Metal.h>
#include <string.h>
#include "bridge.h"

// text copies a string out of the reach of autorelease pools.
static char *text(NSString *s) {
  const char *t = [s UTF8String];
  return strdup(t && *t ? t : "no reason was given");
}

void *metal_default_device(metal_device_facts *facts) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device) {
      facts->name = text([device name]);
      facts->max_buffer = [device maxBufferLength];
      facts->apple7 = [device supportsFamily:METAL_FAMILY];
      facts->unified = [device hasUnifiedMemory];
    }
    return device;
  }
}

void *metal_new_queue(void *device) { return [(id<MTLDevice>)device newCommandQueue]; }

void *metal_new_library(void *device, const char *source, char **failure) {
  @autoreleasepool {
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    [options setFastMathEnabled:NO];
    NSError *error = nil;
    id library = nil;
    @try {
      library = [(id<MTLDevice>)device newLibraryWithSource:[NSString stringWithUTF8String:source] options:options error:&error];
      if (!library) *failure = text([error localizedDescription]);
    } @catch (NSException *x) {
      *failure = text([x reason]);
    }
    return library;
  }
}

void *metal_new_pipeline(void *device, void *library, const char *kernel, uint64_t *max_threads, char **failure) {
  @autoreleasepool {
    id<MTLFunction> function = [[(id<MTLLibrary>)library newFunctionWithName:[NSString stringWithUTF8String:kernel]] autorelease];
    if (!function) return NULL;
    NSError *error = nil;
    id<MTLComputePipelineState> pipeline = nil;
    @try {
      pipeline = [(id<MTLDevice>)device newComputePipelineStateWithFunction:function error:&error];
      if (pipeline) *max_threads = [pipeline maxTotalThreadsPerThreadgroup];
      else *failure = text([error localizedDescription]);
    } @catch (NSException *x) {
      *failure = text([x reason]);
    }
    return pipeline;
  }
}

void *metal_new_buffer(void *device, uint64_t size, void **contents) {
  id<MTLBuffer> buffer = [(id<MTLDevice>)device newBufferWithLength:size options:MTLResourceStorageModeShared];
  *contents = [buffer contents];
  return buffer;
}

void *metal_new_buffer_of(void *device, uint64_t address, uint64_t size) {
  return [(id<MTLDevice>)device newBufferWithBytesNoCopy:(void *)address length:size options:MTLResourceStorageModeShared deallocator:nil];
}

static void encode(id<MTLComputeCommandEncoder> e, const metal_dispatch *d) {
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

void *metal_commit(void *queue, const metal_dispatch *dispatches, int n, char **failure) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [(id<MTLCommandQueue>)queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    @try {
      for (int i = 0; i < n; i++) encode(encoder, dispatches + i);
      [encoder endEncoding];
      [commands commit];
    } @catch (NSException *x) {
      *failure = text([x reason]);
      [encoder endEncoding]; // an encoder may not be given up before
      return NULL;
    }
    return [commands retain];
  }
}

char *metal_finish(void *commands) {
  @autoreleasepool {
    id<MTLCommandBuffer> c = [(id<MTLCommandBuffer>)commands autorelease];
    [c waitUntilCompleted];
    return [c status] == MTLCommandBufferStatusError ? text([[c error] localizedDescription]) : NULL;
  }
}

void metal_release(void *object) { [(id)object release]; }
