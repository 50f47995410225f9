#import <Foundation/NSObject.h>
