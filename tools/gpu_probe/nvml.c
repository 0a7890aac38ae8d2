/* Both versions of NVML's memory numbers, before a context, with one, and with memory in it. Declares the few things
 * of nvml.h that it needs: a machine may have cuda.h alone. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

struct memory_v1 {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static struct {
    int (*init)(void);
    int (*handle)(unsigned, void **);
    int (*first)(void *, struct memory_v1 *);
    int (*second)(void *, struct memory_v2 *);
    void *device;
} nvml;

static int find_nvml(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return -1;
    nvml.init = (int (*)(void))dlsym(library, "nvmlInit_v2");
    nvml.handle = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml.first = (int (*)(void *, struct memory_v1 *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    nvml.second = (int (*)(void *, struct memory_v2 *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    return nvml.init && nvml.handle && nvml.first && nvml.init() == 0 && nvml.handle(0, &nvml.device) == 0 ? 0 : -1;
}

static void look(const char *when)
{
    struct memory_v1 first = {0};
    struct memory_v2 second = {.version = sizeof second | 2u << 24};
    int code = nvml.first(nvml.device, &first), code_v2 = nvml.second ? nvml.second(nvml.device, &second) : -1;
    probe_say("nvml",
              "\"when\": \"%s\", \"code\": %d, \"total\": %llu, \"v1_used\": %llu, \"v1_free\": %llu, \"code_v2\": %d, "
              "\"v2_used\": %llu, \"v2_free\": %llu, \"v2_reserved\": %llu",
              when, code, first.total, first.used, first.free, code_v2, second.used, second.free, second.reserved);
}

void probe_nvml(const char *library)
{
    CUdeviceptr memory;
    if (find_nvml(library) != 0) {
        probe_say("nvml", "\"error\": \"NVML does not start\"");
        exit(1);
    }
    look("before a context");
    probe_start();
    look("with a context");
    size_t bytes = probe_free_bytes() / 4 / (2 * MIB) * (2 * MIB);
    MUST(CU(cuMemAlloc)(&memory, bytes));
    probe_say("nvml", "\"when\": \"allocated\", \"bytes\": %zu", bytes);
    look("with memory");
}
