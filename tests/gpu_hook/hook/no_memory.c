/* Preloaded: realloc fails on the hook's moving thread while the file FLAG is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void *realloc(void *before, size_t bytes)
{
    static void *(*real)(void *, size_t);
    char name[16] = "";
    if (!real)
        real = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    prctl(PR_GET_NAME, name);
    if (strcmp(name, "aliquot-mover") == 0 && access(FLAG, F_OK) == 0)
        return NULL;
    return real(before, bytes);
}
