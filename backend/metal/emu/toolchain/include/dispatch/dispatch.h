/* What darwinkit's queue.m mentions. Nothing of ours dispatches; the linker is given functions that abort. */
#pragma once
#include <stdint.h>
typedef void *dispatch_queue_t, *dispatch_object_t;
void *dispatch_get_main_queue(void);
void *dispatch_get_global_queue(intptr_t, uintptr_t);
void dispatch_retain(dispatch_object_t);
void dispatch_release(dispatch_object_t);
void dispatch_async(dispatch_queue_t, void (^)(void));
void dispatch_sync(dispatch_queue_t, void (^)(void));
