/* A program with its own ideas of threads, signals and limits, linked with the driver. Prints what became of it. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

#ifdef STATIC_TLS
__thread volatile char much[STATIC_TLS];
#endif

extern int cuDriverGetVersion(int *version);
extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **context, int device);
extern int cuCtxSetCurrent(void *context);
extern int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
extern int cuMemGetInfo_v2(size_t *free, size_t *total);
extern int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);

static int begin(void)
{
    void *context = NULL;
    int code = cuInit(0);
    code = code ? code : cuDevicePrimaryCtxRetain(&context, 0);
    return code ? code : cuCtxSetCurrent(context);
}

static int allocate(void)
{
    uint64_t pointer;
    return cuMemAlloc_v2(&pointer, MIB);
}

static int use(void)
{
    int code = begin();
    return code ? code : allocate();
}

/* Its cancellation waits for the next place where a thread may be cancelled. */
static void *use_cancelled(void *unused)
{
    pthread_cancel(pthread_self());
    cuMemcpyDtoDAsync_v2(1, 2, 3, (void *)4);
    cuMemAlloc_v2((uint64_t *)unused, 8 * MIB);
    return NULL;
}

static int be_cancelled(void)
{
    pthread_t thread;
    uint64_t pointer;
    int code = begin();
    if (code || pthread_create(&thread, NULL, use_cancelled, &pointer))
        return code ? code : -1;
    pthread_join(thread, NULL);
    return allocate();
}

static volatile sig_atomic_t frames, is_whole;
static void *outermost;

static void look_back(int signal)
{
    void *found[64];
    frames = backtrace(found, 64);
    for (int i = 0; i < frames; i++)
        is_whole = is_whole || found[i] == outermost;
    write(1, is_whole ? "whole\n" : "torn\n", is_whole ? 6 : 5);
}

static __attribute__((noinline)) int copy_from_here(void)
{
    outermost = __builtin_return_address(0);
    return cuMemcpyDtoDAsync_v2(1, 2, 3, (void *)4) + 0 * (int)frames;
}

/* The test closes the gate at the first line, and sends the signal while the copy waits. */
static int be_watched(void)
{
    void *warm[1];
    int code = begin();
    backtrace(warm, 1); /* loads the unwinder, which a handler must not */
    signal(SIGUSR1, look_back);
    puts("ready");
    getchar();
    code = code ? code : copy_from_here();
    return code;
}

static int be_limited(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_FSIZE, &none);
    return use();
}

/* No descriptor is left when CUDA begins: it runs, without memory until there are some. */
static int be_closed(void)
{
    struct rlimit many = {1024, 1024};
    int version;
    cuDriverGetVersion(&version); /* opens the driver */
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 1024});
    int code = begin();
    int refused = code ? code : allocate();
    printf("%d %d ", code, refused);
    setrlimit(RLIMIT_NOFILE, &many);
    for (int i = 0; i < 10000 && (code = allocate()); i++)
        usleep(1000);
    return code;
}

static void *use_in_thread(void *code)
{
    *(int *)code = use();
    return NULL;
}

static int be_small(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int code = -1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN < 16384 ? 16384 : PTHREAD_STACK_MIN);
    if (begin() || pthread_create(&thread, &attributes, use_in_thread, &code))
        return -1;
    pthread_join(thread, NULL);
    return code;
}

int main(int count, char **arguments)
{
    const char *route = count > 1 ? arguments[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
#ifdef STATIC_TLS
    much[0] = 1;
#endif
    int code = strcmp(route, "cancelled") == 0 ? be_cancelled()
               : strcmp(route, "watched") == 0 ? be_watched()
               : strcmp(route, "limited") == 0 ? be_limited()
               : strcmp(route, "small") == 0   ? be_small()
               : strcmp(route, "closed") == 0  ? be_closed()
                                               : use();
    printf("%d\n", code);
    return 0;
}
