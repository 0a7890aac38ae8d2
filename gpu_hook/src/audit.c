/* libaliquot-audit.so, for LD_AUDIT: whoever asks the loader for a library of the driver, by whatever name or path,
 * gets the shim of this library's folder. The driver's and the shim's own requests pass. Only names are changed here:
 * an audit library lives in a link namespace of its own, with its own C library, where no hook could work. */
#include "driver_names.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum requester { ANYBODY, DRIVER };

static struct {
    char folder[PATH_MAX]; /* with its last slash; empty: nothing is redirected */
    char target[PATH_MAX]; /* guarded by the loader's lock */
} state;

/* Called by the loader, once, before anything is mapped. */
EXPORT unsigned int la_version(unsigned int version)
{
    Dl_info self;
    if (dladdr((void *)la_version, &self) && self.dli_fname && self.dli_fname[0] == '/')
        snprintf(state.folder, sizeof state.folder, "%.*s", (int)(file_of_path(self.dli_fname) - self.dli_fname),
                 self.dli_fname);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

/* Called by the loader for each object. 0: its symbols are none of our business, so that calls cost nothing. The
 * shim's link name is no driver: what it needs must be the shim. */
EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    bool is_link_name = strcmp(file_of_path(map->l_name), CUDA_FILE) == 0;
    *cookie = find_shim_file(map->l_name) && !is_link_name ? DRIVER : ANYBODY;
    return 0;
}

/* Called by the loader for each name that it is asked for; the cookie is that of the object that asks. */
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
    const char *file = flag == LA_SER_ORIG && *cookie != DRIVER && state.folder[0] ? find_shim_file(name) : NULL;
    if (file) {
        int length = snprintf(state.target, sizeof state.target, "%s%s", state.folder, file);
        if (length < (int)sizeof state.target && access(state.target, R_OK) == 0)
            return state.target;
    }
    return (char *)name;
}
