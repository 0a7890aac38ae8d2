#include "charging/graph_memory.h"

#include "base/log.h"
#include "agent_link/page.h"
#include "charging/pools.h"
#include "accounting/quota.h"
#include "gate/residency.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 64u
#define BLOCK ((uint64_t)2 << 20) /* a device gives graphs its memory in multiples of this */

struct exec {
    struct exec *next;
    CUgraphExec handle;
    /* of all its allocation nodes together: the largest amount that it takes */
    uint64_t needs[DEVICES_MAX];
    uint64_t generation[DEVICES_MAX]; /* of the memory that its last launch left it with */
};

/* The graph memory of one device. The quota holds `charged` and `growing`. */
struct memory {
    uint64_t charged;
    uint64_t growing;    /* charged for launches on their way */
    uint64_t generation; /* starts at 1; the next when memory was trimmed */
};

uint32_t graph_memory_count;

static struct { /* guarded by the mutex */
    pthread_mutex_t mutex;
    struct exec *buckets[BUCKETS];
    struct memory devices[DEVICES_MAX];
    uint64_t reserved[DEVICES_MAX]; /* read without the mutex */
    /* taken before the mutex by the thread that charges the growth of graphs, so that it is
     * charged once */
    pthread_mutex_t growth;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .growth = PTHREAD_MUTEX_INITIALIZER};

void graph_memory_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    pthread_mutex_init(&state.growth, NULL);
    for (unsigned i = 0; i < BUCKETS; i++)
        while (state.buckets[i]) {
            struct exec *exec = state.buckets[i];
            state.buckets[i] = exec->next;
            free(exec);
        }
    memset(state.devices, 0, sizeof state.devices);
    memset(state.reserved, 0, sizeof state.reserved);
    graph_memory_count = 0;
}

static struct exec **find(CUgraphExec handle)
{
    struct exec **link = &state.buckets[((uint64_t)handle >> 4) % BUCKETS];
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

/* Note the driver's last answer. */
static void note_reserved(int device, uint64_t bytes)
{
    __atomic_store_n(&state.reserved[device], bytes, __ATOMIC_RELAXED);
}

uint64_t graph_memory_reserved(int device)
{
    return device >= 0 && device < DEVICES_MAX
               ? __atomic_load_n(&state.reserved[device], __ATOMIC_RELAXED)
               : 0;
}

static uint64_t read_attribute(int device, CUgraphMem_attribute attribute, uint64_t otherwise)
{
    cuuint64_t value = 0;
    return driver()->cuDeviceGetGraphMemAttribute(device, attribute, &value) == CUDA_SUCCESS
               ? value
               : otherwise;
}

/* Refund bytes that are no longer reserved. Returns the reserved bytes that are not charged. */
static uint64_t reconcile(int device)
{
    struct memory *memory = &state.devices[device];
    uint64_t reserved =
        read_attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, memory->charged);
    uint64_t held = memory->charged + memory->growing;
    note_reserved(device, reserved);
    if (reserved < memory->charged) {
        quota_refund(device, memory->charged - reserved);
        memory->charged = reserved;
    }
    return reserved > held ? reserved - held : 0;
}

/* Charge the growth of a device's graphs. False: over quota; the driver has the memory
 * nevertheless. */
static bool charge_growth(int device)
{
    pthread_mutex_lock(&state.growth);
    pthread_mutex_lock(&state.mutex);
    uint64_t extra = reconcile(device);
    pthread_mutex_unlock(&state.mutex);
    bool fits = !extra || quota_charge(device, extra);
    pthread_mutex_lock(&state.mutex);
    state.devices[device].charged += fits ? extra : 0;
    reconcile(device);
    pthread_mutex_unlock(&state.mutex);
    pthread_mutex_unlock(&state.growth);
    return fits;
}

void graph_memory_refresh(void)
{
    pthread_mutex_lock(&state.mutex);
    for (int device = 0; device < DEVICES_MAX; device++)
        if (state.devices[device].charged) {
            state.devices[device].generation++;
            reconcile(device);
        }
    pthread_mutex_unlock(&state.mutex);
}

/* With the mutex. */
static void remove_exec(CUgraphExec handle)
{
    struct exec **link = find(handle), *gone = *link;
    if (!gone)
        return;
    *link = gone->next;
    free(gone);
    __atomic_fetch_sub(&graph_memory_count, 1, __ATOMIC_RELAXED);
}

static void remember(CUgraphExec handle, const uint64_t needs[DEVICES_MAX])
{
    struct exec *exec = calloc(1, sizeof *exec);
    pthread_mutex_lock(&state.mutex);
    remove_exec(handle); /* left by a graph that ended without a call that the hook sees */
    if (exec) {
        exec->handle = handle;
        memcpy(exec->needs, needs, sizeof exec->needs);
        *find(handle) = exec;
        __atomic_fetch_add(&graph_memory_count, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&state.mutex);
}

bool graph_memory_instantiated(CUgraphExec exec, const uint64_t needs[DEVICES_MAX])
{
    bool has_memory = false;
    for (int device = 0; device < DEVICES_MAX; device++)
        if (needs[device]) {
            has_memory = true;
            if (!charge_growth(device))
                return false;
        }
    if (has_memory)
        remember(exec, needs);
    return true;
}

CUresult graph_memory_end(CUgraphExec handle, CUresult (*real)(CUgraphExec))
{
    pthread_mutex_lock(&state.mutex);
    CUresult result = real(handle);
    if (result == CUDA_SUCCESS)
        remove_exec(handle);
    pthread_mutex_unlock(&state.mutex);
    return result;
}

void graph_memory_trimmed(int device)
{
    if (device < 0 || device >= DEVICES_MAX)
        return;
    pthread_mutex_lock(&state.mutex);
    state.devices[device].generation++;
    reconcile(device);
    pthread_mutex_unlock(&state.mutex);
}

/* Return the bytes that a device lacks for a launch: 0 when the last launch left the graph with
 * memory; else the bytes beyond its reserved, unused memory. Called with the mutex. */
static uint64_t missing(const struct exec *exec, int device)
{
    const struct memory *memory = &state.devices[device];
    if (exec->generation[device] == memory->generation + 1)
        return 0;
    uint64_t used = read_attribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, memory->charged);
    uint64_t unused = memory->charged > used ? memory->charged - used : 0;
    uint64_t bytes = exec->needs[device] > unused ? exec->needs[device] - unused : 0;
    return bytes > UINT64_MAX - BLOCK ? bytes : (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static void end_growth(int device, uint64_t bytes)
{
    pthread_mutex_lock(&state.mutex);
    state.devices[device].growing -= bytes;
    state.devices[device].charged += bytes;
    reconcile(device);
    pthread_mutex_unlock(&state.mutex);
}

static bool begin_growth(int device, uint64_t bytes)
{
    if (bytes && !pools_charge(device, bytes)) {
        quota_refuse(device, bytes);
        return false;
    }
    pthread_mutex_lock(&state.mutex);
    state.devices[device].growing += bytes;
    pthread_mutex_unlock(&state.mutex);
    return true;
}

/* Called with credit in hand. */
static CUresult call(CUgraphExec handle, CUstream stream, CUresult (*real)(CUgraphExec, CUstream))
{
    if (!residency_enter())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real(handle, stream);
    residency_leave();
    return result;
}

static CUresult launch(const struct exec *exec, CUstream stream,
                       CUresult (*real)(CUgraphExec, CUstream))
{
    uint64_t growing[DEVICES_MAX] = {0};
    CUresult result = CUDA_SUCCESS;
    int end = 0;
    for (; end < DEVICES_MAX && result == CUDA_SUCCESS; end++) {
        if (!exec->needs[end])
            continue;
        pthread_mutex_lock(&state.mutex);
        growing[end] = missing(exec, end);
        pthread_mutex_unlock(&state.mutex);
        if (!begin_growth(end, growing[end])) {
            growing[end] = 0;
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result == CUDA_SUCCESS)
        result = call(exec->handle, stream, real);
    for (int device = 0; device < end; device++) {
        if (!exec->needs[device])
            continue;
        end_growth(device, growing[device]);
        if (!charge_growth(device)) {
            /* The graph is launched. Growth above the quota is charged as soon as it fits. */
            page_add(&page_hook()->unaccounted_calls, 1);
            LOG("event=graph_over_quota device=%d", device);
        }
    }
    return result;
}

CUresult graph_memory_launch(CUgraphExec handle, CUstream stream,
                             CUresult (*real)(CUgraphExec, CUstream))
{
    struct exec exec = {0};
    pthread_mutex_lock(&state.mutex);
    if (*find(handle))
        exec = **find(handle);
    pthread_mutex_unlock(&state.mutex);
    if (!exec.handle)
        return call(handle, stream, real);
    CUresult result = launch(&exec, stream, real);
    pthread_mutex_lock(&state.mutex);
    struct exec *found = result == CUDA_SUCCESS ? *find(handle) : NULL;
    for (int device = 0; found && device < DEVICES_MAX; device++)
        found->generation[device] = state.devices[device].generation + 1;
    pthread_mutex_unlock(&state.mutex);
    return result;
}
