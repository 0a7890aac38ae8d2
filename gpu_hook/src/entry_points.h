/* The jump table of a shim library and the real library behind it. Opens the real one by its absolute path at the
 * first call; refuses to open the shim itself. entry_names and entry_targets are generated from the headers. */
#ifndef ALIQUOT_ENTRY_POINTS_H
#define ALIQUOT_ENTRY_POINTS_H

#include <stdbool.h>

struct entry_library {
    const char *path;     /* of the real library; NULL when the variable is not set */
    const char *variable; /* its name, for the log */
    void *absent;         /* called for what the real library lacks */
    void *unavailable;    /* called for everything when there is no real library */
};

extern const unsigned entry_count;
extern const char *const entry_names[];
extern void *entry_targets[] __attribute__((visibility("hidden")));
extern void *const entry_ours[] __attribute__((visibility("hidden"))); /* NULL: a plain forwarder stands there */

/* Defined by the one module that knows which library this is: driver.c, nvml_driver.c. */
struct entry_library entry_library(void);

/* Called by the forwarders on their first use; returns where to jump. */
void *entry_resolve(unsigned index);

/* Opens the real library if that has not happened yet. False: there is none, the log says why. */
bool entry_points_load(void);

/* The real function of that name; NULL if the real library lacks it. Needs entry_points_load. */
void *entry_points_find(const char *name);

/* What a missing function answers. */
void *entry_points_fallback(void);

/* Whether the table knows the function at this address, which was asked for by this name, with or without its version
 * and stream suffix. Then *ours is what stands before it; NULL: nothing does. Needs entry_points_load. */
bool entry_points_match(const char *asked, void *real, void **ours);

/* Called by the preload library for what dlsym returned: what stands before the real library's function of exactly
 * this name, or `real` itself. */
__attribute__((visibility("default"))) void *aliquot_hook_substitute(const char *name, void *real);

#endif
