#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "accounting/nccl.h"

#include <dlfcn.h>
#include <stddef.h>

#define ITS_FUNCTION "ncclCommInitRank"

/* A look-up also searches the libraries that a library needs, so what it finds must lie in the
 * caller's own: PyTorch needs NCCL, and allocates for itself. */
static bool has_its_function(const Dl_info *caller)
{
    Dl_info found;
    void *library =
        caller->dli_fname ? dlopen(caller->dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!library)
        return false;
    void *function = dlsym(library, ITS_FUNCTION);
    bool is_its_own = function && dladdr(function, &found) && found.dli_fbase == caller->dli_fbase;
    dlclose(library);
    return is_its_own;
}

bool nccl_calls(const void *return_address)
{
    /* the last library that was found to be another; every thread writes what is true */
    static const void *other;
    Dl_info caller;
    if (!dladdr(return_address, &caller) || !caller.dli_fbase ||
        caller.dli_fbase == __atomic_load_n(&other, __ATOMIC_RELAXED))
        return false;
    bool is_nccl = has_its_function(&caller);
    if (!is_nccl)
        __atomic_store_n(&other, caller.dli_fbase, __ATOMIC_RELAXED);
    return is_nccl;
}
