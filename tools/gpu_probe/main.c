/* Chooses the sub-command, and owns all that they share. `gpu_probe LIBCUDA COMMAND [ARGUMENT]`. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "probe.h"

void *probe_driver;
static const char *command_name = "";

static const struct {
    const char *name;
    void (*run)(const char *);
    const char *argument; /* what it needs; NULL: nothing */
} commands[] = {
    {"resolver", probe_resolver, "a file of names"},
    {"vmm", probe_vmm, NULL},
    {"free-zero", probe_free_zero, NULL},
    {"contexts", probe_contexts, NULL},
    {"full", probe_full, NULL},
    {"graph", probe_graph, NULL},
    {"nvml", probe_nvml, "the path of libnvidia-ml.so.1"},
    {"pointers", probe_pointers, NULL},
    {"events", probe_events, NULL},
    {"steps", probe_steps, "a number of steps"},
};

void probe_say(const char *name, const char *fields, ...)
{
    va_list arguments;
    va_start(arguments, fields);
    printf("{\"probe\": \"%s\", ", name);
    vprintf(fields, arguments);
    printf("}\n");
    fflush(stdout);
    va_end(arguments);
}

void *probe_function(const char *name)
{
    void *found = dlsym(probe_driver, name);
    if (found)
        return found;
    probe_say(command_name, "\"error\": \"the driver lacks %s\"", name);
    exit(1);
}

void probe_must(CUresult code, const char *call, const char *file, int line)
{
    if (code == CUDA_SUCCESS)
        return;
    char first[48];
    snprintf(first, sizeof first, "%s", call);
    first[strcspn(first, ")")] = '\0';
    const char *name = strrchr(file, '/');
    probe_say(command_name, "\"error\": \"%s) answered %d\", \"at\": \"%s:%d\"", first, (int)code,
              name ? name + 1 : file, line);
    exit(1);
}

CUcontext probe_start(void)
{
    CUcontext context;
    MUST(CU(cuInit)(0));
    MUST(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    MUST(CU(cuCtxSetCurrent)(context));
    return context;
}

CUfunction probe_kernel(const char *name)
{
    static CUmodule module;
    CUfunction found;
    const char *path = getenv("ALIQUOT_BUILTINS");
    if (!module) {
        char text[65536] = "";
        FILE *file = path ? fopen(path, "r") : NULL;
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file)
            fclose(file);
        if (!length) {
            probe_say(command_name, "\"error\": \"ALIQUOT_BUILTINS does not name builtins.ptx\"");
            exit(1);
        }
        MUST(CU(cuModuleLoadData)(&module, text));
    }
    MUST(CU(cuModuleGetFunction)(&found, module, name));
    return found;
}

void probe_launch(CUfunction kernel, CUstream stream, void **arguments)
{
    MUST(CU(cuLaunchKernel)(kernel, 1, 1, 1, 128, 1, 1, 0, stream, arguments, NULL));
}

double probe_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

double probe_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count ? values[count / 2] : 0;
}

size_t probe_free_bytes(void)
{
    size_t free_bytes, total;
    MUST(CU(cuMemGetInfo)(&free_bytes, &total));
    return free_bytes;
}

CUmemAllocationProp probe_pinned(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

void probe_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(CU(cuMemMap)(address, bytes, 0, handle, 0));
    MUST(CU(cuMemSetAccess)(address, bytes, &access, 1));
}

int main(int count, char **arguments)
{
    const size_t known = sizeof commands / sizeof *commands;
    size_t chosen = 0;
    while (count > 2 && chosen < known && strcmp(commands[chosen].name, arguments[2]) != 0)
        chosen++;
    if (count < 3 || chosen == known || (commands[chosen].argument && count < 4)) {
        fprintf(stderr, "usage: gpu_probe LIBCUDA COMMAND [ARGUMENT]\n");
        for (size_t i = 0; i < known; i++)
            fprintf(stderr, "  %s %s\n", commands[i].name, commands[i].argument ? commands[i].argument : "");
        return 2;
    }
    command_name = commands[chosen].name;
    probe_driver = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!probe_driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    commands[chosen].run(count > 3 ? arguments[3] : NULL);
    return 0;
}
