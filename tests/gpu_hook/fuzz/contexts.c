/* Contexts: primary and created, the threads' stacks of them, limits, peers. */
#include "fuzz.h"

static struct object *primary_of(int device)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[CONTEXT][i].state == LIVE && objects[CONTEXT][i].bytes == 1 && objects[CONTEXT][i].device == device)
            return &objects[CONTEXT][i];
    return NULL;
}

static void create(void)
{
    static const unsigned flags[] = {0, CU_CTX_SCHED_SPIN, CU_CTX_MAP_HOST, CU_CTX_SCHED_BLOCKING_SYNC, 0x4000};
    CUcontext context = (CUcontext)UNTOUCHED;
    struct object *slot = room(CONTEXT);
    unsigned flag = flags[draw(5)], way = (unsigned)draw(3), created = 0;
    int device = draw_device();
    for (int i = 0; i < SLOTS; i++)
        created += objects[CONTEXT][i].state == LIVE && objects[CONTEXT][i].bytes == 0;
    if (!slot || created >= 3)
        return;
    settle();
    CUcontext *result = chance(3) ? NULL : &context;
    CUresult code = way == 0   ? CALL(cuCtxCreate_v2(result, flag, device))
                    : way == 1 ? CALL(cuCtxCreate_v3(result, NULL, 0, flag, device))
                               : CALL(cuCtxCreate_v4(result, NULL, flag, device));
    if (code == CUDA_SUCCESS && result) {
        keep(slot, (uint64_t)context, 0);
        slot->device = device;
    } else {
        note_untouched("context", (uint64_t)context);
    }
}

static void destroy(void)
{
    struct object *at;
    CUcontext context = (CUcontext)pick(CONTEXT, &at);
    if (at && at->bytes && chance(80))
        return; /* a primary context: its own error, seldom */
    settle();
    if (CALL(cuCtxDestroy_v2(context)) == CUDA_SUCCESS && at) {
        drop_owned(at->value);
        drop(at);
    }
}

static void set_current(void)
{
    struct object *at;
    CUcontext context = (CUcontext)pick(CONTEXT, &at);
    settle();
    CALL(cuCtxSetCurrent(context));
}

static void push(void)
{
    struct object *at;
    CUcontext context = (CUcontext)pick(CONTEXT, &at);
    settle();
    CALL(cuCtxPushCurrent_v2(context));
}

static void pop(void)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    settle();
    CUresult code = CALL(cuCtxPopCurrent_v2(chance(10) ? NULL : &context));
    if (code)
        note_untouched("context", (uint64_t)context);
    else
        note_handle("context", CONTEXT, (uint64_t)context);
}

static void ask(void)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    CUdevice device = 55;
    unsigned flags = 55, version = 55;
    int least = 55, greatest = 55;
    struct object *at;
    CALL(cuCtxGetCurrent(chance(3) ? NULL : &context));
    note_handle("context", CONTEXT, (uint64_t)context);
    CALL(cuCtxGetDevice(chance(3) ? NULL : &device));
    note("device", (uint64_t)device);
    CALL(cuCtxGetFlags(&flags));
    note("flags", flags);
    CALL(cuCtxGetApiVersion((CUcontext)pick(CONTEXT, &at), &version));
    note("version", version);
    CALL(cuCtxGetStreamPriorityRange(chance(30) ? NULL : &least, &greatest));
    note("least", (uint64_t)least);
    note("greatest", (uint64_t)greatest);
}

static void limits(void)
{
    CUlimit limit = (CUlimit)draw(8);
    size_t value = UNTOUCHED, wanted = draw(1 << 16);
    if (chance(50))
        CALL(cuCtxSetLimit(limit, wanted));
    CALL(cuCtxGetLimit(chance(3) ? NULL : &value, limit));
    note("value", value);
}

static void cache(void)
{
    CUfunc_cache preference = (CUfunc_cache)77;
    CALL(cuCtxSetCacheConfig((CUfunc_cache)draw(5)));
    CALL(cuCtxGetCacheConfig(&preference));
    note("preference", preference);
    CALL(cuCtxResetPersistingL2Cache());
}

static void synchronize(void)
{
    settle();
    CALL(cuCtxSynchronize());
}

static void synchronize_other(void)
{
    struct object *at;
    CUcontext context = (CUcontext)pick(CONTEXT, &at);
    settle();
    CALL(cuCtxSynchronize_v2(context));
}

static void retain(void)
{
    CUcontext context = (CUcontext)UNTOUCHED;
    int device = draw_device();
    struct object *slot = device >= 0 && device < DEVICES ? primary_of(device) : NULL;
    if (!slot && !room(CONTEXT))
        return;
    CUcontext *result = chance(3) ? NULL : &context;
    if (CALL(cuDevicePrimaryCtxRetain(result, device)) != CUDA_SUCCESS || !result) {
        note_untouched("context", (uint64_t)context);
    } else if (slot) {
        note("same", slot->value == (uint64_t)context);
    } else {
        slot = room(CONTEXT);
        keep(slot, (uint64_t)context, 1);
        slot->device = device;
    }
}

/* How many uses are left is the driver's to know: after a reset, too. */
static void note_end(int device)
{
    unsigned flags;
    int is_active = 0;
    struct object *slot = primary_of(device);
    cuDevicePrimaryCtxGetState(device, &flags, &is_active);
    note("is_active", (uint64_t)is_active);
    if (!slot || is_active)
        return;
    drop_owned(slot->value);
    drop(slot);
    for (int i = 0; i < SLOTS; i++) /* memory of pools goes with the device */
        if (objects[POINTER][i].state == LIVE && !objects[POINTER][i].owner && objects[POINTER][i].device == device)
            drop(&objects[POINTER][i]);
}

static void release(void)
{
    int device = draw_device();
    if (chance(50))
        return;
    settle();
    CALL(cuDevicePrimaryCtxRelease_v2(device));
    note_end(device);
}

static void reset(void)
{
    int device = draw_device();
    settle();
    CALL(cuDevicePrimaryCtxReset_v2(device));
    note_end(device);
}

static void state(void)
{
    unsigned flags = 55;
    int is_active = 55, device = draw_device();
    CALL(cuDevicePrimaryCtxGetState(device, chance(3) ? NULL : &flags, &is_active));
    note("flags", flags);
    note("is_active", (uint64_t)is_active);
    if (chance(30))
        CALL(cuDevicePrimaryCtxSetFlags_v2(device, (unsigned)draw(9)));
}

static void peers(void)
{
    int can = 55;
    struct object *at;
    CUcontext other = (CUcontext)pick(CONTEXT, &at);
    CALL(cuDeviceCanAccessPeer(&can, draw_device(), draw_device()));
    note("can", (uint64_t)can);
    if (chance(60))
        CALL(cuCtxEnablePeerAccess(other, chance(5) ? 1 : 0));
    else
        CALL(cuCtxDisablePeerAccess(other));
}

static const struct operation operations[] = {
    {"context_create", 3, create},     {"context_destroy", 3, destroy},
    {"context_set", 6, set_current},   {"context_push", 4, push},
    {"context_pop", 5, pop},           {"context_ask", 2, ask},
    {"context_limits", 1, limits},     {"context_cache", 1, cache},
    {"context_sync", 3, synchronize},  {"context_sync_other", 1, synchronize_other},
    {"primary_retain", 4, retain},     {"primary_release", 3, release},
    {"primary_reset", 1, reset},       {"primary_state", 2, state},
    {"context_peers", 2, peers},
};
const struct family context_family = FAMILY(operations);
