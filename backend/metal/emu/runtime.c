//go:build metalemu

// What darwinkit links to of Apple's runtime and of libdispatch, and the libraries here lack. Nothing of it is reached, but for
// class_getMethodImplementation_stret, which is the plain look-up here, and associated objects, which are not kept.
#include <stddef.h>
#include <stdlib.h>

#define UNREACHED(name) \
  void *name(void) { abort(); }
UNREACHED(imp_implementationWithBlock)
UNREACHED(imp_getBlock)
UNREACHED(imp_removeBlock)
UNREACHED(property_copyAttributeValue)
UNREACHED(property_copyAttributeList)
UNREACHED(class_addProperty)
UNREACHED(class_replaceProperty)
UNREACHED(objc_allocateProtocol)
UNREACHED(dispatch_get_main_queue)
UNREACHED(dispatch_get_global_queue)
UNREACHED(dispatch_retain)
UNREACHED(dispatch_release)
UNREACHED(dispatch_async)
UNREACHED(dispatch_sync)

void objc_setAssociatedObject(void *object, const void *key, void *value, unsigned long policy) {}
void *objc_getAssociatedObject(void *object, const void *key) { return NULL; }
void objc_removeAssociatedObjects(void *object) {}

void *class_getMethodImplementation(void *class, void *selector);
void *class_getMethodImplementation_stret(void *class, void *selector) { return class_getMethodImplementation(class, selector); }
