/* Modules, libraries, functions, and launches of the built-in kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define IMAGE_BYTES (1 << 20)

static char image[IMAGE_BYTES]; /* of the built-in kernels */

static const char *builtins(void)
{
    const char *path = getenv("ALIQUOT_BUILTINS");
    FILE *file = image[0] || !path ? NULL : fopen(path, "r");
    if (file) {
        size_t length = fread(image, 1, sizeof image - 1, file);
        image[length] = '\0';
        fclose(file);
    }
    return image;
}

static void load(void)
{
    static const char *const nonsense[] = {"", "//", ".version 7.0\n.target sm_60\n", "\177ELF", "nonsense"};
    CUmodule module = (CUmodule)UNTOUCHED;
    struct object *slot = room(MODULE);
    const char *data = chance(85) ? builtins() : nonsense[draw(5)];
    static char padded[256];
    if (!slot)
        return;
    if (data != image) {
        memset(padded, 0, sizeof padded);
        strcpy(padded, data);
        data = padded;
    }
    CUmodule *result = chance(2) ? NULL : &module;
    CUresult code = chance(60) ? CALL(cuModuleLoadData(result, data))
                               : CALL(cuModuleLoadDataEx(result, data, 0, NULL, NULL));
    if (code == CUDA_SUCCESS && result)
        keep_owned(slot, (uint64_t)module, 0);
    else
        note_untouched("module", (uint64_t)module);
}

static void unload(void)
{
    struct object *at;
    CUmodule module = (CUmodule)pick(MODULE, &at);
    settle();
    if (CALL(cuModuleUnload(module)) == CUDA_SUCCESS && at)
        drop(at);
}

static const char *function_name(void)
{
    static const char *const names[] = {"aliquot_fill", "aliquot_copy", "aliquot_hash", "aliquot_spin", "missing", ""};
    return names[draw(chance(10) ? 6 : 4)];
}

static void ask(void)
{
    struct object *at;
    CUfunction function = (CUfunction)UNTOUCHED;
    CUmodule module = (CUmodule)pick(MODULE, &at);
    CUdeviceptr global = UNTOUCHED;
    size_t bytes = UNTOUCHED;
    unsigned count = 55;
    int value = 55;
    if (CALL(cuModuleGetFunction(&function, module, function_name())) == CUDA_SUCCESS) {
        CALL(cuFuncGetAttribute(&value, (CUfunction_attribute)draw(18), function));
        note("value", (uint64_t)value);
        CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, (int)draw(1100), draw(1 << 16)));
        note("value", (uint64_t)value);
    } else {
        note_untouched("function", (uint64_t)function);
    }
    CALL(cuModuleGetGlobal_v2(&global, &bytes, module, "missing"));
    CALL(cuModuleGetFunctionCount(&count, module));
    note("count", count);
}

static void library(void)
{
    struct object *at, *slot = room(LIBRARY);
    CUlibrary made = (CUlibrary)UNTOUCHED;
    CUkernel kernel = NULL;
    unsigned count = 55;
    if (slot && chance(60)) {
        if (CALL(cuLibraryLoadData(&made, builtins(), NULL, NULL, 0, NULL, NULL, 0)) == CUDA_SUCCESS)
            keep(slot, (uint64_t)made, 0);
        return;
    }
    CUlibrary old = (CUlibrary)pick(LIBRARY, &at);
    CALL(cuLibraryGetKernelCount(&count, old));
    note("count", count);
    CALL(cuLibraryGetKernel(&kernel, old, function_name()));
    settle();
    if (chance(60) && CALL(cuLibraryUnload(old)) == CUDA_SUCCESS && at)
        drop(at);
}

CUfunction builtin(const char *name)
{
    CUfunction function = NULL;
    for (int i = 0; i < SLOTS; i++)
        if (objects[MODULE][i].state == LIVE && objects[MODULE][i].owner == (uint64_t)current_context() &&
            cuModuleGetFunction(&function, (CUmodule)objects[MODULE][i].value, name) == CUDA_SUCCESS)
            return function;
    return NULL;
}

static const struct operation operations[] = {
    {"module_load", 3, load}, {"module_unload", 2, unload}, {"module_ask", 2, ask}, {"library", 2, library},
};
const struct family module_family = FAMILY(operations);

static void fill(void)
{
    uint64_t most, words;
    CUdeviceptr pointer = pick_memory(&most) & ~3ull;
    unsigned value = (unsigned)draw_bits();
    CUstream stream = pick_stream();
    CUfunction function = builtin("aliquot_fill");
    void *arguments[] = {&pointer, &value, &words};
    words = chance(95) ? (most / 4 ? draw(most / 4 < 20000 ? most / 4 : 20000) : 0) : most;
    if (!function)
        return;
    unsigned blocks = chance(4) ? 0 : 1 + (unsigned)draw(8), threads = chance(4) ? 5000 : 1 + (unsigned)draw(256);
    unsigned way = (unsigned)draw(4);
    begin_work(way == 2 ? per_thread(stream) : stream);
    if (way < 2)
        CALL(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL));
    else if (way == 2)
        CALL(cuLaunchKernel_ptsz(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL));
    else
        CALL(cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments));
    settle();
}

static void fill_with(void)
{
    uint64_t most, words;
    CUdeviceptr pointer = pick_memory(&most) & ~3ull;
    unsigned value = (unsigned)draw_bits();
    CUfunction function = builtin("aliquot_fill");
    void *arguments[] = {&pointer, &value, &words};
    words = most / 4 ? draw(most / 4 < 5000 ? most / 4 : 5000) : 0;
    CUlaunchConfig config = {.gridDimX = 1 + (unsigned)draw(4), .gridDimY = 1, .gridDimZ = chance(4) ? 0 : 1,
                             .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1, .hStream = pick_stream()};
    if (!function)
        return;
    begin_work(config.hStream);
    CALL(cuLaunchKernelEx(chance(3) ? NULL : &config, function, arguments, NULL));
    settle();
}

static void spin(void)
{
    struct object *at;
    uint64_t nanoseconds = draw(20000);
    void *arguments[] = {&nanoseconds};
    CUfunction function = chance(90) ? builtin("aliquot_spin") : (CUfunction)pick(FUNCTION, &at);
    CUstream stream = pick_stream();
    begin_work(stream);
    CALL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    if (chance(50))
        settle();
}

static const struct operation launches[] = {
    {"launch_fill", 8, fill}, {"launch_ex", 4, fill_with}, {"launch_spin", 5, spin},
};
const struct family launch_family = FAMILY(launches);
