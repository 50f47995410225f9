/* What bridge.m uses of Metal, declared as Apple's documentation has it. */
#pragma once
#import <Foundation/Foundation.h>

typedef struct { NSUInteger width, height, depth; } MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger w, NSUInteger h, NSUInteger d) { MTLSize s = {w, h, d}; return s; }

enum { MTLBarrierScopeBuffers = 1 };
enum { MTLDispatchTypeSerial, MTLDispatchTypeConcurrent };
enum { MTLResourceStorageModeShared = 0 };
enum { MTLCommandBufferStatusError = 5 };

@protocol MTLFunction <NSObject>
@end

@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)maxTotalThreadsPerThreadgroup;
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end

@protocol MTLBuffer <NSObject>
- (void *)contents;
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)memoryBarrierWithScope:(NSUInteger)scope;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)endEncoding;
@end

@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(NSUInteger)type;
- (void)commit;
- (void)waitUntilCompleted;
- (NSUInteger)status;
- (NSError *)error;
@end

@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
@end

@interface MTLCompileOptions : NSObject
- (void)setFastMathEnabled:(BOOL)enabled;
@end

@protocol MTLDevice <NSObject>
- (NSString *)name;
- (NSUInteger)maxBufferLength;
- (BOOL)supportsFamily:(NSInteger)family;
- (BOOL)hasUnifiedMemory;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pages length:(NSUInteger)length options:(NSUInteger)options deallocator:(id)deallocator; // a block
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void);
