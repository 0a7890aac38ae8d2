#include "copy_engine/ring.h"

#include "base/log.h"

#include <stdint.h>
#include <sys/mman.h>

#define UNIT_BYTES (2ull << 20)

struct region {
    char *memory; /* NULL: none */
    size_t bytes;
    CUcontext context; /* that it is registered in; NULL: it is not */
};

static struct region state; /* guarded by contexts_hold */

void ring_reset(void)
{
    state = (struct region){NULL, 0, NULL};
}

void ring_forget_context(CUcontext context)
{
    if (state.context == context)
        state.context = NULL;
}

/* Query the driver, too: a context may have ended unseen. Its answer alone is not enough: where
 * devices reach all host memory, a driver knows every address. */
static bool is_still_locked(void)
{
    CUmemorytype type;
    return state.context &&
           driver()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           (CUdeviceptr)state.memory) == CUDA_SUCCESS;
}

static bool lock(struct region *region)
{
    CUresult result =
        driver()->cuMemHostRegister_v2(region->memory, region->bytes, CU_MEMHOSTREGISTER_PORTABLE);
    bool is_locked = result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!is_locked || driver()->cuCtxGetCurrent(&region->context) != CUDA_SUCCESS)
        region->context = NULL;
    return is_locked;
}

/* This also makes the driver treat the addresses as ordinary ones again. */
static void give_back(struct region *region)
{
    if (!region->memory)
        return;
    if (region->context)
        driver()->cuMemHostUnregister(region->memory);
    munmap(region->memory, region->bytes);
    *region = (struct region){NULL, 0, NULL};
}

/* The ring is registered memory of our own: the driver's memory would vanish with the context in
 * which it was made. */
static bool make(struct region *region, size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, bytes, MADV_HUGEPAGE);
    madvise(memory, bytes, MADV_DONTFORK);
    madvise(memory, bytes, MADV_DONTDUMP);
    *region = (struct region){memory, bytes, NULL};
    return true;
}

/* Take the largest size that can be locked, above `beyond` bytes, in place of the present ring. */
static bool make_locked(size_t wanted, size_t least, size_t beyond)
{
    struct region found;
    for (size_t bytes = wanted; bytes >= least && bytes > beyond && bytes >= UNIT_BYTES;
         bytes = bytes / 2 / UNIT_BYTES * UNIT_BYTES) {
        if (!make(&found, bytes))
            continue;
        if (lock(&found)) {
            give_back(&state);
            state = found;
            return true;
        }
        LOG("event=ring_not_locked bytes=%zu", bytes);
        give_back(&found);
    }
    return false;
}

struct ring ring_take(size_t wanted, size_t least)
{
    wanted = (wanted + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    bool is_locked = state.memory && (is_still_locked() || lock(&state));
    if (!is_locked)
        give_back(&state);
    if (state.bytes < wanted)
        is_locked = make_locked(wanted, least, state.bytes) || is_locked;
    if (!is_locked && !make(&state, least))
        return (struct ring){0};
    return (struct ring){state.memory, state.bytes, is_locked};
}
