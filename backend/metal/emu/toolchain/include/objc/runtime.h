/* GCC's runtime, and what darwinkit mentions of Apple's that it lacks. The emulation's runtime.c defines these. */
#pragma once
#include_next <objc/runtime.h>
#include <stdbool.h>
#include <stdlib.h>
typedef struct { const char *name, *value; } objc_property_attribute_t;
IMP imp_implementationWithBlock(id);
id imp_getBlock(IMP);
BOOL imp_removeBlock(IMP);
char *property_copyAttributeValue(objc_property_t, const char *);
objc_property_attribute_t *property_copyAttributeList(objc_property_t, unsigned *);
BOOL class_addProperty(Class, const char *, const objc_property_attribute_t *, unsigned);
void class_replaceProperty(Class, const char *, const objc_property_attribute_t *, unsigned);
IMP class_getMethodImplementation_stret(Class, SEL);
Protocol *objc_allocateProtocol(const char *);
void objc_setAssociatedObject(id, const void *, id, uintptr_t);
id objc_getAssociatedObject(id, const void *);
void objc_removeAssociatedObjects(id);
