/* client ROUTE PATH: finds the driver's functions as programs do, and says who answers. PATH is the driver's file.
 * Prints "intercepted" when an allocation over the quota is refused, "missed" when it is granted, else what failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OVER_QUOTA ((size_t)100 << 20)
#define OUT_OF_MEMORY 2

#ifdef FIRST_DLSYM /* what programs built before glibc 2.34 are bound to */
__asm__(".symver dlsym, dlsym@" FIRST_DLSYM);
#endif

typedef int (*query_v1)(const char *name, void **function, int version, uint64_t flags);
typedef int (*query_v2)(const char *name, void **function, int version, uint64_t flags, int *status);

static void *handle;
static query_v1 first;
static query_v2 second;

static void *find(const char *exported, const char *asked)
{
    void *function = NULL;
    if (first)
        first(asked, &function, 11030, 0);
    else if (second)
        second(asked, &function, 12000, 0, NULL);
    else
        function = dlsym(handle, exported);
    if (!function) {
        printf("%s was not found\n", exported);
        exit(1);
    }
    return function;
}

static void *open_route(const char *route, const char *path)
{
    if (strstr(route, "global")) {
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        return RTLD_DEFAULT;
    }
    if (strstr(route, "deepbind"))
        return dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);
    if (strstr(route, "link_name"))
        return dlopen("libcuda.so", RTLD_NOW);
    if (strstr(route, "absolute_after")) { /* the name first, then the path */
        dlopen("libcuda.so.1", RTLD_NOW);
        return dlopen(path, RTLD_NOW);
    }
    if (strstr(route, "absolute"))
        return dlopen(path, RTLD_NOW);
    if (strstr(route, "namespace"))
        return dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    return dlopen("libcuda.so.1", RTLD_NOW);
}

/* Programs that ask the driver: by its first query, by its second, or by the query that a query gave. */
static void choose_query(const char *route)
{
    void *function = NULL;
    if (strstr(route, "query_first")) {
        first = (query_v1)dlsym(handle, "cuGetProcAddress");
    } else if (strstr(route, "query_itself_first")) {
        ((query_v1)dlsym(handle, "cuGetProcAddress"))("cuGetProcAddress", &function, 11030, 0);
        first = (query_v1)function;
    } else if (strstr(route, "query_itself")) {
        ((query_v2)dlsym(handle, "cuGetProcAddress_v2"))("cuGetProcAddress", &function, 12000, 0, NULL);
        second = (query_v2)function;
    } else if (strstr(route, "query")) {
        second = (query_v2)dlsym(handle, "cuGetProcAddress_v2");
    }
}

int main(int count, char **arguments)
{
    const char *route = arguments[1];
    handle = open_route(route, arguments[2]);
    if (!handle && !strstr(route, "global")) {
        puts(dlerror());
        return 1;
    }
    choose_query(route);
    int (*init)(unsigned) = (int (*)(unsigned))find("cuInit", "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = (int (*)(void *))find("cuCtxSetCurrent", "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))find("cuMemAlloc_v2", "cuMemAlloc");
    void *context = NULL;
    uint64_t pointer = 0;
    int begun = init(0);
    if (!begun)
        begun = retain(&context, 0);
    if (!begun)
        begun = use(context);
    int code = begun ? begun : alloc(&pointer, OVER_QUOTA);
    if (begun)
        printf("could not begin: error %d\n", begun);
    else if (code == OUT_OF_MEMORY)
        puts("intercepted");
    else
        puts(code == 0 ? "missed" : "wrong");
    return 0;
}
