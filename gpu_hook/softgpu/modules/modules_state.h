/* The inside of a module, for the files that make up modules and libraries. */
#ifndef SOFTGPU_MODULES_STATE_H
#define SOFTGPU_MODULES_STATE_H

#include "modules/modules.h"

struct module {
    struct context *context; /* NULL: a library */
    struct image image;
    struct function *functions;
    unsigned function_count;
    struct global_place {
        uint64_t address, allocation_id;
    } *globals; /* one per global of the image; address 0: not asked for yet */
    struct module *next;
};

/* context NULL: a library. */
CUresult module_load(const void *data, size_t bytes, struct context *context, struct module **out);
CUresult module_load_file(const char *path, struct context *context, struct module **out);
void module_unload(struct module *module);
CUresult module_find(struct module *module, const char *name, struct function **out);
CUresult module_global(struct module *module, const char *name, CUdeviceptr *address, size_t *bytes);
/* Writes up to `room` functions; returns how many there are. */
unsigned module_list(struct module *module, const void **out, unsigned room);

#endif
