/* A driver that looks for its own functions by name and opens another file of its own, as the driver of Windows'
 * Linux does. cuInit answers 0 when it got its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

int cuDeviceGetCount(int *count)
{
    return 77;
}

int cuInit(unsigned flags)
{
    Dl_info self;
    dladdr((void *)cuInit, &self);
    void *handle = dlopen(self.dli_fname, RTLD_NOW);
    if (dlsym(handle, "cuInit") != (void *)cuInit)
        return 101;
    const char *other = getenv("OTHER_DRIVER_FILE");
    void *opened = other ? dlopen(other, RTLD_NOW) : NULL;
    return other && (!opened || !dlsym(opened, "is_the_other")) ? 102 : 0;
}
