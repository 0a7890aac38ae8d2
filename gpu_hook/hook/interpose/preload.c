/* libaliquot-preload.so, the fallback where no folder can come first: preloaded behind the two
 * shim libraries, it stands before dlsym. The real dlsym answers first, in the handle that the
 * caller gave; this library replaces the answer only if it is the driver's own function of
 * exactly that name and the hook stands before it. */
#include "interpose/driver_names.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef void *(*substitute_function)(const char *name, void *real);
typedef void *(*dlsym_function)(void *handle, const char *name);

/* Read by preload.S. NULL until the first call of dlsym. */
dlsym_function preload_real_dlsym __attribute__((visibility("hidden")));

static struct {
    pthread_once_t once;
    substitute_function cuda, nvml; /* NULL: that shim cannot be opened */
} state = {.once = PTHREAD_ONCE_INIT};

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

static void *find_nothing(void *handle, const char *name)
{
    return NULL;
}

/* Called by preload.S. */
__attribute__((visibility("hidden"))) void preload_find_dlsym(void)
{
    void *found = dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION);
    __atomic_store_n(&preload_real_dlsym, found ? (dlsym_function)found : find_nothing,
                     __ATOMIC_RELEASE);
}

static substitute_function open_shim(const char *folder, const char *file)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", folder, file) >= (int)sizeof path)
        return NULL;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    return handle ? (substitute_function)preload_real_dlsym(handle, "aliquot_hook_substitute")
                  : NULL;
}

static void open_shims(void)
{
    char folder[PATH_MAX];
    Dl_info self;
    if (!dladdr((void *)open_shims, &self) || !self.dli_fname)
        return;
    int length = (int)(file_of_path(self.dli_fname) - self.dli_fname);
    if (snprintf(folder, sizeof folder, "%.*s", length, self.dli_fname) >= (int)sizeof folder)
        return;
    state.cuda = open_shim(folder, CUDA_FILE ".1");
    state.nvml = open_shim(folder, NVML_FILE ".1");
}

/* When the driver looks for its own functions, or the hook for the driver's, the real ones pass. */
static bool is_of_the_driver(const void *caller)
{
    Dl_info found;
    return dladdr(caller, &found) && found.dli_fname && find_shim_file(found.dli_fname);
}

/* Called by preload.S for every handle that names an object. */
__attribute__((visibility("hidden"))) void *preload_dlsym(void *handle, const char *name,
                                                          const void *caller)
{
    void *real = preload_real_dlsym(handle, name);
    bool is_cuda = real && strncmp(name, "cu", 2) == 0;
    bool is_nvml = real && strncmp(name, "nvml", 4) == 0;
    if ((!is_cuda && !is_nvml) || is_of_the_driver(caller))
        return real;
    pthread_once(&state.once, open_shims);
    substitute_function substitute = is_cuda ? state.cuda : state.nvml;
    void *found = substitute ? substitute(name, real) : real;
    dlerror(); /* our own failed lookup is no error of the caller's, whose name was found */
    return found;
}
