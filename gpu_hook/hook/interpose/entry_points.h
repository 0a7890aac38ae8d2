/* The jump table of a shim library and the real library behind it. Opens the real one by its
 * absolute path at the first call; refuses to open the shim itself. What is declared extern here is
 * generated from the headers. */
#ifndef ALIQUOT_ENTRY_POINTS_H
#define ALIQUOT_ENTRY_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry_library {
    const char *path;     /* of the real library; NULL when the variable is not set */
    const char *variable; /* its name, for the log */
    void *absent;         /* called for what the real library lacks */
    void *unavailable;    /* called for everything when there is no real library */
    /* Returns the function in front of an export whose name the table lacks; NULL: there is
     * none. */
    void *(*unknown)(const char *name, void *real);
};

extern const unsigned entry_count;
extern const char entry_text[] __attribute__((visibility("hidden")));
/* offsets into the text */
extern const uint32_t entry_names_at[] __attribute__((visibility("hidden")));
/* NULL: not resolved yet */
extern void *entry_targets[] __attribute__((visibility("hidden")));
/* from each to its function; 0: none */
extern const int32_t entry_ours_at[] __attribute__((visibility("hidden")));

static inline const char *entry_name(unsigned index)
{
    return entry_text + entry_names_at[index];
}

/* Return the hook's function in front of the real one; NULL: a plain forwarder. */
static inline void *entry_ours(unsigned index)
{
    const int32_t *at = &entry_ours_at[index];
    return *at ? (char *)at + *at : NULL;
}

/* Defined by the one module that knows which library this is: driver.c, nvml_driver.c. */
struct entry_library entry_library(void);

/* Called by the forwarders on their first use; returns where to jump. */
void *entry_resolve(unsigned index);

/* Open the real library, once. False: there is none, and the log gives the reason. */
bool entry_points_load(void);

/* Return the real function of that name; NULL: the real library lacks it. Needs
 * entry_points_load. */
void *entry_points_find(const char *name);

/* Return the function that answers for a missing one. */
void *entry_points_fallback(void);

/* Return whether the table knows the function at this address, which the program requested by
 * this name, with or without its version and stream suffix. Then *ours is the hook's function;
 * NULL: there is none. Needs entry_points_load. */
bool entry_points_match(const char *asked, void *real, void **ours);

/* Called by the preload library with dlsym's answer. Returns the hook's function for the real
 * library's function of exactly this name, or `real` itself. */
__attribute__((visibility("default"))) void *aliquot_hook_substitute(const char *name, void *real);

#endif
