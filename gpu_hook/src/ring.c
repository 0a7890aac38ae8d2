#include "ring.h"

#include "driver.h"
#include "log.h"

#include <stdint.h>
#include <sys/mman.h>

#define UNIT_BYTES (2ull << 20)

/* Of one thread at a time: the mover's, with contexts_hold. */
static struct {
    char *memory;
    size_t bytes;
    bool is_locked;
} state;

void ring_reset(void)
{
    state.memory = NULL;
    state.bytes = 0;
}

/* A registration ends with the context that made it, the memory does not. */
static bool is_still_locked(void)
{
    CUmemorytype type;
    return state.is_locked && driver()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                              (CUdeviceptr)state.memory) == CUDA_SUCCESS;
}

static bool lock(void)
{
    CUresult result = driver()->cuMemHostRegister_v2(state.memory, state.bytes, CU_MEMHOSTREGISTER_PORTABLE);
    state.is_locked = result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return state.is_locked;
}

/* Which also tells the driver that the addresses are ordinary ones again. */
static void give_back(void)
{
    if (!state.memory)
        return;
    if (state.is_locked)
        driver()->cuMemHostUnregister(state.memory);
    munmap(state.memory, state.bytes);
    ring_reset();
}

/* Memory of our own that is registered, for memory of the driver's would vanish with the context that it was made in. */
static bool make(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, bytes, MADV_HUGEPAGE);
    madvise(memory, bytes, MADV_DONTFORK);
    madvise(memory, bytes, MADV_DONTDUMP);
    state.memory = memory;
    state.bytes = bytes;
    return true;
}

struct ring ring_take(size_t wanted, size_t least)
{
    wanted = (wanted + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    if (state.memory && state.bytes >= wanted && (is_still_locked() || lock()))
        return (struct ring){state.memory, state.bytes, true};
    give_back();
    for (size_t bytes = wanted; bytes >= least && bytes >= UNIT_BYTES; bytes = bytes / 2 / UNIT_BYTES * UNIT_BYTES)
        if (make(bytes)) {
            if (lock())
                return (struct ring){state.memory, state.bytes, true};
            LOG("event=ring_not_locked bytes=%zu", bytes);
            give_back();
        }
    if (!make(least))
        return (struct ring){0};
    return (struct ring){state.memory, state.bytes, false};
}
