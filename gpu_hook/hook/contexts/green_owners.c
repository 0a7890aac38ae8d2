#include "contexts/green_owners.h"

#include "accounting/devices.h"
#include "base/log.h"

#include <stdint.h>
#include <string.h>

/* beyond that the place of one that has ended is used again: its arrays are then refunded late */
#define OWNED_MOST 64u

struct owned {
    CUgreenCtx green;  /* NULL: it has ended */
    CUcontext context; /* atomic, as `primary`. NULL: free */
    CUcontext primary;
};

static struct { /* the count first: every start reads it */
    uint32_t count; /* atomic; entries from 0 to it may be in use */
    struct owned all[OWNED_MOST];
} state;

static struct owned *find(CUcontext context)
{
    uint32_t count = __atomic_load_n(&state.count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++)
        if (__atomic_load_n(&state.all[i].context, __ATOMIC_ACQUIRE) == context)
            return &state.all[i];
    return NULL;
}

CUcontext green_owner(CUcontext context)
{
    struct owned *found = context ? find(context) : NULL;
    return found ? __atomic_load_n(&found->primary, __ATOMIC_ACQUIRE) : context;
}

/* NULL: this thread's stack of contexts is full. */
static CUcontext find_primary(CUcontext context)
{
    CUcontext primary = NULL, popped;
    if (driver()->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return NULL;
    int device = devices_current();
    devices_use(device);
    driver()->cuCtxPopCurrent_v2(&popped);
    if (device >= 0 && driver()->cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS)
        driver()->cuDevicePrimaryCtxRelease_v2(device); /* the green context is a use of it, too */
    return primary;
}

void green_owners_remember(CUgreenCtx green, CUcontext context)
{
    struct owned *entry = find(context);
    if (!entry)
        entry = find(NULL);
    if (!entry && state.count < OWNED_MOST)
        entry = &state.all[state.count];
    for (uint32_t i = 0; !entry && i < OWNED_MOST; i++)
        if (!state.all[i].green)
            entry = &state.all[i];
    CUcontext primary = entry ? find_primary(context) : NULL;
    if (!primary) {
        LOG("event=green_context_not_noted context=%p", (void *)context);
        return;
    }
    entry->green = green;
    __atomic_store_n(&entry->primary, primary, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->context, context, __ATOMIC_RELEASE);
    if (state.count < OWNED_MOST && entry == &state.all[state.count])
        __atomic_store_n(&state.count, state.count + 1, __ATOMIC_RELEASE);
}

CUcontext green_owners_end(CUgreenCtx green)
{
    for (uint32_t i = 0; green && i < state.count; i++)
        if (state.all[i].green == green) {
            state.all[i].green = NULL; /* the driver may give the handle to another one */
            return state.all[i].context;
        }
    return NULL;
}

static void forget(struct owned *owned)
{
    owned->green = NULL;
    __atomic_store_n(&owned->context, NULL, __ATOMIC_RELEASE);
}

void green_owners_forget_primary(CUcontext primary)
{
    for (uint32_t i = 0; primary && i < state.count; i++)
        if (state.all[i].primary == primary)
            forget(&state.all[i]);
}

void green_owners_forget(CUcontext context)
{
    struct owned *found = context ? find(context) : NULL;
    if (found)
        forget(found);
}

void green_owners_reset(void)
{
    memset(&state, 0, sizeof state);
}
