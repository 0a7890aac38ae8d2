#include "charging/pools.h"

#include "contexts/captures.h"
#include "accounting/devices.h"
#include "charging/pool_devices.h"
#include "accounting/quota.h"

#include <pthread.h>
#include <stdlib.h>

#define OF_SOMEBODY_ELSE (-1)          /* as a pool's device */
/* of one allocation: no device has as much, and sums do not overflow */
#define MOST_BYTES ((uint64_t)1 << 56)
#define PIECE 512u                     /* a pool divides its memory in steps of this */
#define BLOCK (2u << 20)               /* and takes it from the device in multiples of this */

/* The quota holds `charged` and `growing` for it. When no call is on its way, `charged` is what the
 * driver has reserved, and the others are 0. */
struct pool {
    struct pool *next;
    CUmemoryPool handle; /* NULL: ended, or the driver does not name it */
    int device;          /* or QUOTA_HOST, or OF_SOMEBODY_ELSE */
    bool is_ended;
    /* holds more than its allocations: on a full device the driver may take it back */
    bool has_unused;
    bool is_loose;   /* and more than its threshold: so it may at any synchronization */
    uint64_t threshold; /* bytes that it keeps, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
    uint64_t charged;
    uint64_t growing; /* charged for calls on their way */
    /* not charged yet, for calls on their way: others count on it, the ledger does not */
    uint64_t asked;
    uint64_t used;    /* by allocations that live or are on their way, as rounded by us */
    uint64_t uses;    /* number of these allocations */
};

/* Guarded by the mutex, which is also held over calls that make or end a pool, for handles are used
 * again, and over readings of a pool's size, so that an older reading never replaces a newer. */
static struct {
    pthread_mutex_t mutex;
    struct pool *all; /* a program has a few */
    uint32_t unused, loose; /* numbers of such pools; read without the mutex too */
    /* taken before the mutex by the thread that charges a pool's growth, so that it is charged
     * once */
    pthread_mutex_t growth;
    bool (*helper)(int device); /* atomic; one value, once there is a pool of our own */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .growth = PTHREAD_MUTEX_INITIALIZER};

void pools_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    pthread_mutex_init(&state.growth, NULL);
    while (state.all) {
        struct pool *pool = state.all;
        state.all = pool->next;
        free(pool);
    }
    state.unused = state.loose = 0;
}

static struct pool *find(CUmemoryPool handle, int device)
{
    struct pool *pool = state.all;
    while (pool &&
           (pool->is_ended || pool->handle != handle || (!handle && pool->device != device)))
        pool = pool->next;
    return pool;
}

/* NULL without memory for it: then its allocations are not charged. */
static struct pool *remember(CUmemoryPool handle, int device)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->next = state.all;
    state.all = pool;
    pool->handle = handle;
    pool->device = device;
    cuuint64_t threshold;
    if (handle && driver()->cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                                  &threshold) == CUDA_SUCCESS)
        pool->threshold = threshold;
    return pool;
}

static void count(uint32_t *pools, bool *was, bool is)
{
    if (is != *was)
        __atomic_fetch_add(pools, is ? 1u : UINT32_MAX, __ATOMIC_RELAXED);
    *was = is;
}

static void note_unused(struct pool *pool)
{
    bool has_unused = !pool->is_ended && pool->charged > pool->used;
    count(&state.unused, &pool->has_unused, has_unused);
    count(&state.loose, &pool->is_loose,
          has_unused && pool->charged + pool->growing > pool->threshold);
}

/* Return the bytes that the pool takes from the device. A pool that was destroyed ends with its
 * last allocation; where the driver does not answer for a pool, the hook's own books count. */
static uint64_t read_reserved(const struct pool *pool)
{
    cuuint64_t reserved = 0;
    if (pool->is_ended)
        return pool->uses ? pool->charged : 0;
    if (pool->handle &&
        driver()->cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                        &reserved) == CUDA_SUCCESS)
        return reserved;
    return pool->used;
}

/* Refund the bytes that the pool has released. Returns its growth that is not charged. */
static uint64_t reconcile(struct pool *pool)
{
    uint64_t reserved = read_reserved(pool), held = pool->charged + pool->growing;
    if (reserved < pool->charged) {
        quota_refund(pool->device, pool->charged - reserved);
        pool->charged = reserved;
    }
    note_unused(pool);
    return reserved > held ? reserved - held : 0;
}

static void forget_if_over(struct pool *gone)
{
    if (!gone->is_ended || gone->uses)
        return;
    struct pool **link = &state.all;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    free(gone);
}

/* No call that the hook sees makes default pools, nor those of a call that no header knows. */
static struct pool *meet(CUmemoryPool handle, int stream_device)
{
    cuuint64_t reserved;
    int device = pool_devices_of_default(handle);
    if (device >= 0)
        return remember(handle, device);
    if (stream_device < 0 ||
        driver()->cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
            CUDA_SUCCESS)
        return NULL; /* not a pool: the driver will report it */
    return remember(handle, stream_device);
}

static struct pool *pool_of(CUmemoryPool handle, CUstream stream)
{
    struct pool *pool = handle ? find(handle, 0) : NULL;
    if (pool)
        return pool;
    int device = pool_devices_of_stream(stream);
    if (handle)
        return meet(handle, device);
    if (device < 0 || driver()->cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS)
        handle = NULL;
    if ((pool = find(handle, device)))
        return pool;
    return device < 0 ? NULL : handle ? meet(handle, device) : remember(NULL, device);
}

/* Make the device's pools release what they hold unused, for a call that was refused, as a
 * driver */
static bool trim(int device, uint64_t *unused)
{
    uint64_t before = 0, after = 0, used = 0;
    pthread_mutex_lock(&state.mutex);
    for (struct pool *pool = state.all; pool; pool = pool->next)
        if (pool->device == device) {
            uint64_t reserved = read_reserved(pool);
            before += reserved > pool->charged ? reserved : pool->charged;
            if (pool->handle)
                driver()->cuMemPoolTrimTo(pool->handle, 0);
            reconcile(pool);
            after += read_reserved(pool);
            used += pool->used;
        }
    pthread_mutex_unlock(&state.mutex);
    *unused = after > used ? after - used : 0;
    return before > after;
}

/* Return whether a wait for the device helps: memory that is freed in the order of a stream is
 * released when the stream gets there. */
static bool can_wait(int device)
{
    return devices_current() == device && !captures_are_on() &&
           driver()->cuCtxSynchronize() == CUDA_SUCCESS;
}

/* Return the bytes that the driver lacks for an allocation that is counted in `used` already.
 * Called with the mutex. */
static uint64_t missing(const struct pool *pool, uint64_t bytes)
{
    uint64_t held = pool->charged + pool->growing + pool->asked;
    uint64_t lacking = pool->used > held ? pool->used - held : 0;
    lacking = (lacking < bytes ? lacking : bytes) + BLOCK - 1;
    return lacking - lacking % BLOCK;
}

bool pools_charge(int device, uint64_t bytes)
{
    bool (*helper)(int device) = __atomic_load_n(&state.helper, __ATOMIC_RELAXED);
    uint64_t unused;
    return quota_charge(device, bytes) || (trim(device, &unused) && quota_charge(device, bytes)) ||
           (unused && can_wait(device) && trim(device, &unused) && quota_charge(device, bytes)) ||
           (helper && helper(device) && quota_charge(device, bytes));
}

void pools_set_helper(bool (*helper)(int device))
{
    __atomic_store_n(&state.helper, helper, __ATOMIC_RELAXED);
}

bool pools_reserve(struct pool_use *use, CUmemoryPool handle, CUstream stream, uint64_t bytes)
{
    bytes = bytes < MOST_BYTES ? (bytes + PIECE - 1) / PIECE * PIECE : MOST_BYTES;
    *use = (struct pool_use){.bytes = bytes};
    pthread_mutex_lock(&state.mutex);
    struct pool *pool = pool_of(handle, stream);
    if (!pool || pool->device == OF_SOMEBODY_ELSE) {
        pthread_mutex_unlock(&state.mutex);
        return true;
    }
    use->pool = pool;
    use->device = pool->device;
    pool->used += bytes;
    pool->uses++;
    uint64_t asked = missing(pool, bytes);
    pool->asked += asked;
    pthread_mutex_unlock(&state.mutex);
    bool fits = !asked || pools_charge(use->device, asked);
    pthread_mutex_lock(&state.mutex);
    pool->asked -= asked;
    use->growing = fits ? asked : 0;
    pool->growing += use->growing;
    /* another call took a chunk that is large enough for both */
    fits = fits || missing(pool, bytes) == 0;
    pthread_mutex_unlock(&state.mutex);
    if (fits)
        return true;
    quota_refuse(use->device, asked);
    pools_release(pool, bytes, 0);
    return false;
}

/* Charge the pool's growth beyond the earlier charge. False: over quota. */
static bool charge_extra(struct pool *pool, uint64_t *extra)
{
    pthread_mutex_lock(&state.growth);
    pthread_mutex_lock(&state.mutex);
    *extra = reconcile(pool);
    pthread_mutex_unlock(&state.mutex);
    bool fits = !*extra || quota_charge(pool->device, *extra);
    pthread_mutex_lock(&state.mutex);
    pool->charged += fits ? *extra : 0;
    reconcile(pool);
    pthread_mutex_unlock(&state.mutex);
    pthread_mutex_unlock(&state.growth);
    return fits;
}

bool pools_commit(struct pool_use *use)
{
    struct pool *pool = use->pool;
    if (!pool)
        return true;
    pthread_mutex_lock(&state.mutex);
    bool has_grown = use->growing > 0;
    pool->growing -= use->growing;
    pool->charged += use->growing;
    use->growing = 0;
    uint64_t extra = reconcile(pool);
    pthread_mutex_unlock(&state.mutex);
    if (has_grown || extra)
        pools_refresh(); /* on a full device the driver took what it needed from other pools */
    uint64_t unused;
    if (!extra || charge_extra(pool, &extra) ||
        (trim(pool->device, &unused) && charge_extra(pool, &extra)) ||
        (unused && can_wait(pool->device) && trim(pool->device, &unused) &&
         charge_extra(pool, &extra)))
        return true;
    quota_refuse(pool->device, extra);
    return false;
}

void pools_release(struct pool *pool, uint64_t bytes, uint64_t growing)
{
    if (!pool)
        return;
    pthread_mutex_lock(&state.mutex);
    pool->growing -= growing;
    pool->charged += growing;
    pool->used -= bytes;
    pool->uses--;
    if (growing || !pool->handle)
        reconcile(pool);
    else
        note_unused(pool);
    forget_if_over(pool);
    pthread_mutex_unlock(&state.mutex);
}

void pools_refresh_all(void)
{
    pthread_mutex_lock(&state.mutex);
    for (struct pool *pool = state.all; pool; pool = pool->next)
        reconcile(pool);
    pthread_mutex_unlock(&state.mutex);
}

bool pools_are_loose(void)
{
    return __atomic_load_n(&state.loose, __ATOMIC_RELAXED) != 0;
}

static void reconcile_some(bool is_sync)
{
    pthread_mutex_lock(&state.mutex);
    for (struct pool *pool = state.all; pool; pool = pool->next)
        if (is_sync ? pool->is_loose : pool->has_unused)
            reconcile(pool);
    pthread_mutex_unlock(&state.mutex);
}

void pools_refresh(void)
{
    if (__atomic_load_n(&state.unused, __ATOMIC_RELAXED))
        reconcile_some(false);
}

void pools_synchronized(void)
{
    if (pools_are_loose())
        reconcile_some(true);
}

CUresult pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    pthread_mutex_lock(&state.mutex);
    CUresult result = driver()->cuMemPoolSetAttribute(handle, attribute, value);
    struct pool *pool = handle && result == CUDA_SUCCESS ? find(handle, 0) : NULL;
    if (pool && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->threshold = *(const cuuint64_t *)value;
        note_unused(pool);
    }
    pthread_mutex_unlock(&state.mutex);
    return result;
}

void pools_await_release(int device)
{
    uint64_t unused;
    if (can_wait(device))
        trim(device, &unused);
}

void pools_trim(int device)
{
    uint64_t unused;
    trim(device, &unused);
}

/* Called with the mutex. Also for a pool that ended unseen, when its handle is used again. */
static void end_pool(struct pool *pool)
{
    if (!pool)
        return;
    pool->is_ended = true;
    pool->handle = NULL;
    reconcile(pool);
    forget_if_over(pool);
}

CUresult pools_create(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    pthread_mutex_lock(&state.mutex);
    CUresult result = driver()->cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS) {
        end_pool(find(*pool, 0));
        remember(*pool, pool_devices_of_location(properties));
    }
    pthread_mutex_unlock(&state.mutex);
    return result;
}

CUresult pools_import(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                      unsigned long long flags)
{
    pthread_mutex_lock(&state.mutex);
    CUresult result = driver()->cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    if (result == CUDA_SUCCESS) {
        end_pool(find(*pool, 0));
        remember(*pool, OF_SOMEBODY_ELSE);
    }
    pthread_mutex_unlock(&state.mutex);
    return result;
}

CUresult pools_destroy(CUmemoryPool handle)
{
    pthread_mutex_lock(&state.mutex);
    CUresult result = driver()->cuMemPoolDestroy(handle);
    if (handle && result == CUDA_SUCCESS)
        end_pool(find(handle, 0));
    pthread_mutex_unlock(&state.mutex);
    return result;
}
