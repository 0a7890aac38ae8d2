/* Modules and libraries: loaded images, and the functions in them. A CUmodule belongs to a context,
 * a CUlibrary does not. */
#ifndef SOFTGPU_MODULES_H
#define SOFTGPU_MODULES_H

#include <stdatomic.h>

#include "modules/builtins.h"
#include "driver/contexts.h"
#include "modules/images.h"

struct module;
struct prepared_launch;

/* A CUfunction and a CUkernel are both pointers to this. */
struct function {
    struct module *module;
    const char *name;
    const struct parameter *parameters;
    uint32_t parameter_count, parameter_bytes;
    int is_opaque; /* its parameters are unknown */
    const struct builtin *builtin; /* NULL: timed, not executed */
    int dynamic_shared_bytes;      /* settable */
    int carveout;                  /* settable */
    _Atomic(struct prepared_launch *) prepared; /* NULL: the old way of launching it was not used */
    struct function *next;
};

/* The function behind a CUfunction or CUkernel, or NULL. */
struct function *function_of(const void *handle);
void modules_close_all(struct context *context);

#endif
