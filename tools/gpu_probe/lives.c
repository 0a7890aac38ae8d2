/* The driver's answers about contexts that ended, about objects that are made on a full device,
 * and about host memory that was never registered. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

#define ROUNDS 50
#define MOST_HANDLES 4096

typedef CUresult (*create_context)(CUcontext *, unsigned, CUdevice); /* cuCtxCreate_v2, as drivers since 4.0 have it */

/* Runs in a child: a freed handle may end the process. */
static void ask_ended_contexts(void)
{
    create_context create = (create_context)probe_function("cuCtxCreate_v2");
    int alive = 0, refused = 0, last = 0;
    double slowest = 0;
    MUST(CU(cuInit)(0));
    for (int i = 0; i < ROUNDS; i++) {
        CUcontext context;
        unsigned version;
        MUST(create(&context, 0, 0));
        MUST(CU(cuCtxDestroy)(context));
        double since = probe_microseconds();
        int code = (int)CU(cuCtxGetApiVersion)(context, &version);
        double microseconds = probe_microseconds() - since;
        slowest = microseconds > slowest ? microseconds : slowest;
        alive += code == CUDA_SUCCESS;
        refused += code != CUDA_SUCCESS;
        last = code;
    }
    probe_say("ended_contexts", "\"asked\": %d, \"answered_as_alive\": %d, \"refused\": %d, \"last_code\": %d, "
              "\"slowest_us\": %.2f", ROUNDS, alive, refused, last, slowest);
}

void probe_contexts(const char *unused)
{
    int status;
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        ask_ended_contexts();
        exit(0);
    }
    if (child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status))
        probe_say("ended_contexts", "\"asked\": %d, \"signal\": %d", ROUNDS, WTERMSIG(status));
}

/* Takes the device's memory to the last unit; returns the number of handles. */
static size_t fill(CUmemGenericAllocationHandle *handles)
{
    CUmemAllocationProp wanted = probe_pinned();
    size_t count = 0;
    for (size_t bytes = 1024 * MIB; bytes >= 2 * MIB; bytes /= 2)
        while (count < MOST_HANDLES && CU(cuMemCreate)(&handles[count], bytes, &wanted, 0) == CUDA_SUCCESS)
            count++;
    return count;
}

/* Makes so many streams or events; returns how many it got, and the code that ended it. */
static void make_objects(int are_events, int wanted)
{
    int made = 0, code = CUDA_SUCCESS;
    for (; made < wanted && code == CUDA_SUCCESS; made += code == CUDA_SUCCESS) {
        CUstream stream;
        CUevent event;
        code = (int)(are_events ? CU(cuEventCreate)(&event, 0) : CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    }
    probe_say("full", "\"made\": \"%s\", \"wanted\": %d, \"got\": %d, \"code\": %d", are_events ? "events" : "streams",
              wanted, made, code);
}

static void register_host(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 2 * MIB, bytes) != 0)
        return;
    memset(memory, 1, bytes);
    double since = probe_microseconds();
    int code = (int)CU(cuMemHostRegister)(memory, bytes, 0);
    probe_say("full", "\"made\": \"a registration of host memory\", \"mib\": %zu, \"us\": %.0f, \"code\": %d",
              bytes / MIB, probe_microseconds() - since, code);
    if (code == CUDA_SUCCESS)
        CU(cuMemHostUnregister)(memory);
    free(memory);
}

void probe_full(const char *unused)
{
    static CUmemGenericAllocationHandle handles[MOST_HANDLES];
    (void)unused;
    probe_start();
    size_t before = probe_free_bytes(), count = fill(handles);
    CUdeviceptr rest[256];
    int small = 0;
    while (small < 256 && CU(cuMemAlloc)(&rest[small], MIB) == CUDA_SUCCESS)
        small++;
    probe_say("full", "\"made\": \"memory\", \"mib\": %zu, \"left_bytes\": %zu", before / MIB, probe_free_bytes());
    make_objects(0, 16);
    make_objects(1, 1024);
    register_host(64 * MIB);
    register_host(512 * MIB);
    void *host = NULL;
    int code = (int)CU(cuMemHostAlloc)(&host, 64 * MIB, CU_MEMHOSTALLOC_PORTABLE);
    probe_say("full", "\"made\": \"page-locked host memory\", \"mib\": 64, \"code\": %d", code);
    for (int i = 0; i < small; i++)
        CU(cuMemFree)(rest[i]);
    for (size_t i = 0; i < count; i++)
        CU(cuMemRelease)(handles[i]);
}

static void ask_type(const char *what, void *memory)
{
    unsigned type = 0;
    int code = (int)CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)memory);
    probe_say("pointers", "\"memory\": \"%s\", \"code\": %d, \"type\": %u", what, code, type);
}

void probe_pointers(const char *unused)
{
    int pageable = 0, tables = 0;
    void *memory = NULL;
    (void)unused;
    probe_start();
    if (posix_memalign(&memory, 4096, 4 * MIB) != 0)
        return;
    memset(memory, 1, 4 * MIB);
    CU(cuDeviceGetAttribute)(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0);
    CU(cuDeviceGetAttribute)(&tables, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0);
    probe_say("pointers", "\"pageable_access\": %d, \"host_page_tables\": %d", pageable, tables);
    ask_type("host, never registered", memory);
    MUST(CU(cuMemHostRegister)(memory, 4 * MIB, 0));
    ask_type("host, registered", memory);
    MUST(CU(cuMemHostUnregister)(memory));
    ask_type("host, no longer registered", memory);
    free(memory);
}
