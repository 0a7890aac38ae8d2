/* Built-in kernels: the entries of builtins.ptx, which run for real. Their names have a prefix of
 * ours, so that no program's kernel is taken for one. */
#ifndef SOFTGPU_BUILTINS_H
#define SOFTGPU_BUILTINS_H

#include <stdint.h>

#include "modules/images.h"

#define BUILTIN_WRITES_NOTHING UINT32_MAX

struct builtin {
    const char *name;
    uint32_t parameter_count;
    uint8_t parameter_bytes[4]; /* each at its natural alignment */
    uint32_t written; /* the offset of the pointer to what it writes */
    /* 0, or -1 when an address is not allocated, or the device (by its index in the machine) may
     * not use it so. */
    int (*check)(const void *arguments, unsigned device);
    int (*run)(const void *arguments, unsigned device);
    /* Device time that the arguments ask for, or 0. */
    uint64_t (*nanoseconds)(const void *arguments);
};

/* The built-in of this name and these parameters, or NULL. */
const struct builtin *builtin_find(const struct entry *entry);

#endif
