/* The end of a sequence: the fuzzer gives all memory back, in an order that lets each object go.
 * It does not note codes, since an injected fault may make a first try fail; it notes how much
 * stays in use. */
#include "frame.h"
#include "fuzz.h"

#define TRIES 3

uint64_t left_over;

static CUresult give_back(enum kind kind, struct object *one)
{
    switch (kind) {
    case EXEC:
        return cuGraphExecDestroy((CUgraphExec)one->value);
    case GRAPH:
        return cuGraphDestroy((CUgraph)one->value);
    case USER_OBJECT:
        return cuUserObjectRelease((CUuserObject)one->value, 1);
    case TEXTURE:
        return cuTexObjectDestroy(one->value);
    case SURFACE:
        return cuSurfObjectDestroy(one->value);
    case ARRAY:
        return cuArrayDestroy((CUarray)one->value);
    case MIPMAP:
        return cuMipmappedArrayDestroy((CUmipmappedArray)one->value);
    case POINTER:
        return cuMemFree_v2(one->value);
    case HOST:
        return cuMemFreeHost((void *)one->value);
    case REGISTERED:
        return cuMemHostUnregister((void *)one->value);
    case MAPPING:
        return cuMemUnmap(one->value, one->bytes);
    case HANDLE:
        return cuMemRelease(one->value);
    case RESERVATION:
        return cuMemAddressFree(one->value, one->bytes);
    case EVENT:
        return cuEventDestroy_v2((CUevent)one->value);
    case POOL:
        return cuMemPoolDestroy((CUmemoryPool)one->value);
    case LIBRARY:
        return cuLibraryUnload((CUlibrary)one->value);
    case MODULE:
        return cuModuleUnload((CUmodule)one->value);
    default:
        return CUDA_SUCCESS;
    }
}

static void end_captures(void)
{
    CUgraph graph;
    for (int i = 0; i < SLOTS; i++) {
        CUstream stream = (CUstream)objects[STREAM][i].value;
        if (objects[STREAM][i].state != LIVE)
            continue;
        for (int try = 0; try < TRIES && is_captured(stream); try++)
            if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph)
                cuGraphDestroy(graph);
        for (int try = 0; try < TRIES && cuStreamDestroy_v2(stream) != CUDA_SUCCESS; try++)
            continue;
    }
}

static void end_contexts(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[CONTEXT][i].state == LIVE && objects[CONTEXT][i].bytes)
            drop(&objects[CONTEXT][i]); /* primary ones */
    for (int i = 0; i < SLOTS; i++) {
        struct object *one = &objects[CONTEXT][i];
        for (int try = 0; try < TRIES && one->state == LIVE && one->bytes == 0; try++)
            if (cuCtxDestroy_v2((CUcontext)one->value) == CUDA_SUCCESS)
                drop(one);
    }
    for (int device = 0; device < DEVICES; device++) {
        int is_active = 1;
        unsigned flags;
        for (int try = 0; try < TRIES && cuDevicePrimaryCtxReset_v2(device) != CUDA_SUCCESS; try++)
            continue;
        for (int try = 0; try < 100 && is_active; try++) {
            cuDevicePrimaryCtxRelease_v2(device);
            cuDevicePrimaryCtxGetState(device, &flags, &is_active);
        }
    }
}

/* The default pools as a new process finds them, and what is free then. */
static void measure(void)
{
    left_over = 0;
    for (int device = 0; device < DEVICES; device++) {
        CUmemoryPool pool;
        CUcontext context;
        uint64_t threshold = 0;
        size_t free_bytes = 0, total_bytes = 1;
        int yes = 1;
        for (int try = 0; try < TRIES && cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS; try++)
            continue;
        if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
            cuCtxSetCurrent(context);
        for (int try = 0; try < TRIES && cuCtxSynchronize() != CUDA_SUCCESS; try++)
            continue;
        if (cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS ||
            cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS)
            for (int try = 0; try < TRIES; try++) {
                cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
                cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &yes);
                cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &yes);
                cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &yes);
                cuDeviceSetMemPool(device, pool);
                cuMemPoolTrimTo(pool, 0);
            }
        for (int try = 0; try < TRIES && cuDeviceGraphMemTrim(device) != CUDA_SUCCESS; try++)
            continue;
        for (int try = 0; try < TRIES && cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS; try++)
            continue;
        note_size("used", total_bytes - free_bytes);
        left_over += total_bytes - free_bytes;
        cuCtxSetCurrent(NULL);
        if (cuDevicePrimaryCtxRelease_v2(device) != CUDA_SUCCESS)
            cuDevicePrimaryCtxRelease_v2(device);
    }
}

void clean_up(void)
{
    static const enum kind order[] = {EXEC,       GRAPH,   USER_OBJECT, TEXTURE,     SURFACE, ARRAY,
                                      MIPMAP,     POINTER, HOST,        REGISTERED,  MAPPING, HANDLE,
                                      RESERVATION, EVENT,  POOL,        LIBRARY,     MODULE};
    end_captures();
    if (cuCtxSynchronize() != CUDA_SUCCESS) { /* a graph wrote to memory that was freed: nothing works in the context */
        for (int i = 0; i < SLOTS; i++)
            if (objects[CONTEXT][i].state == LIVE)
                drop_owned(objects[CONTEXT][i].value);
        end_contexts();
        frame_revive();
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (int j = 0; j < SLOTS; j++) {
            struct object *one = &objects[order[i]][j];
            for (unsigned try = one->uses + TRIES; try > 0 && one->state == LIVE; try--)
                if (give_back(order[i], one) == CUDA_SUCCESS && --one->uses == 0)
                    drop(one);
            if (one->state == LIVE)
                note_handle("kept", order[i], one->value);
        }
    end_contexts();
    measure();
}
