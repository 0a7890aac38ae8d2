/* Stream-ordered memory and pools. */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

static CUmemPoolProps properties(void)
{
    CUmemPoolProps wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.allocType = chance(4) ? CU_MEM_ALLOCATION_TYPE_INVALID : CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = chance(4) ? CU_MEM_LOCATION_TYPE_INVALID : CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = draw_device();
    wanted.handleTypes = chance(30) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    wanted.maxSize = chance(20) ? (1 + draw(8)) * MIB : 0;
    return wanted;
}

static void create(void)
{
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;
    struct object *slot = room(POOL);
    CUmemPoolProps wanted = properties();
    if (!slot)
        return;
    CUmemoryPool *result = chance(2) ? NULL : &pool;
    if (CALL(cuMemPoolCreate(result, &wanted)) == CUDA_SUCCESS && result)
        keep(slot, (uint64_t)pool, 0);
    else
        note_untouched("pool", (uint64_t)pool);
}

static CUmemoryPool pick_pool(struct object **at)
{
    CUmemoryPool pool = NULL;
    *at = NULL;
    if (chance(40) && cuDeviceGetDefaultMemPool(&pool, (int)draw(DEVICES)) == CUDA_SUCCESS)
        return pool;
    return (CUmemoryPool)pick(POOL, at);
}

static void destroy(void)
{
    struct object *at;
    CUmemoryPool pool = chance(95) ? (CUmemoryPool)pick(POOL, &at) : pick_pool(&at);
    settle();
    if (CALL(cuMemPoolDestroy(pool)) == CUDA_SUCCESS && at)
        drop(at);
}

static void allocate(void)
{
    struct object *slot = room(POINTER), *at;
    CUdeviceptr pointer = UNTOUCHED;
    size_t bytes = draw_bytes();
    CUstream stream = pick_stream();
    CUmemoryPool pool = pick_pool(&at);
    if (!slot)
        return;
    unsigned way = (unsigned)draw(5);
    stream = way == 2 ? NULL : stream;
    CUstream meant = way == 2 || way == 3 ? per_thread(stream) : stream;
    bool captured = is_captured(meant);
    CUdeviceptr *result = chance(2) ? NULL : &pointer;
    settle();
    begin_work(meant);
    CUresult code = way == 2   ? CALL(cuMemAllocAsync_ptsz(result, bytes, NULL))
                    : way == 3 ? CALL(cuMemAllocFromPoolAsync_ptsz(result, bytes, pool, stream))
                    : way == 4 ? CALL(cuMemAllocFromPoolAsync(result, bytes, pool, stream))
                               : CALL(cuMemAllocAsync(result, bytes, stream));
    settle();
    draw_within_quota();
    if (code == CUDA_SUCCESS && result) {
        note_address("pointer", pointer);
        if (!captured) {
            keep(slot, pointer, bytes);
            slot->device = -1; /* without a current context it is unknown */
            cuPointerGetAttribute(&slot->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
        } else {
            CALL_TWICE(cuMemFreeAsync(pointer, meant)); /* else a launch of the graph leaves it allocated */
        }
    } else {
        note_untouched("pointer", pointer);
    }
}

static void release(void)
{
    struct object *at;
    CUdeviceptr pointer = pick(POINTER, &at);
    CUstream stream = pick_stream();
    bool captured = is_captured(stream);
    settle();
    begin_work(stream);
    if (CALL(cuMemFreeAsync(pointer, stream)) == CUDA_SUCCESS && at && !captured)
        drop(at);
    settle();
}

static void attributes(void)
{
    struct object *at;
    CUmemoryPool pool = pick_pool(&at);
    CUmemPool_attribute attribute = (CUmemPool_attribute)(1 + draw(10));
    uint64_t value = UNTOUCHED;
    settle();
    CALL(cuMemPoolGetAttribute(pool, attribute, &value));
    if (attribute <= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        note("value", value);
    else
        note_size("value", value);
    value = attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? draw(2)
            : attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD               ? (chance(30) ? ~0ull : draw(16 * MIB))
                                                                           : draw(10) / 9;
    if (chance(50))
        CALL(cuMemPoolSetAttribute(pool, attribute, &value));
}

static void trim(void)
{
    struct object *at;
    CUmemoryPool pool = pick_pool(&at);
    settle();
    CALL(cuMemPoolTrimTo(pool, chance(50) ? 0 : draw(16 * MIB)));
}

static void choose(void)
{
    struct object *at;
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED, other = pick_pool(&at);
    int device = draw_device();
    switch (draw(3)) {
    case 0:
        CALL(cuDeviceGetDefaultMemPool(&pool, device));
        note("is_there", pool != (CUmemoryPool)UNTOUCHED);
        break;
    case 1:
        CALL(cuDeviceGetMemPool(&pool, device));
        note_handle("pool", POOL, (uint64_t)pool);
        break;
    default:
        CALL(cuDeviceSetMemPool(device, other));
    }
}

static void access_rights(void)
{
    struct object *at;
    CUmemoryPool pool = pick_pool(&at);
    CUmemAccessDesc access;
    CUmemAccess_flags flags = (CUmemAccess_flags)0x55;
    memset(&access, 0, sizeof access);
    access.location.type = chance(4) ? CU_MEM_LOCATION_TYPE_INVALID : CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = draw_device();
    access.flags = chance(70) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : (CUmemAccess_flags)draw(3);
    if (chance(50))
        CALL(cuMemPoolSetAccess(pool, &access, chance(5) ? 0 : 1));
    CALL(cuMemPoolGetAccess(&flags, pool, &access.location));
    note("flags", flags);
}

static void share(void)
{
    struct object *at;
    CUmemoryPool pool = pick_pool(&at), imported = (CUmemoryPool)UNTOUCHED;
    int descriptor = -1;
    CUresult code =
        CALL(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (code != CUDA_SUCCESS)
        return;
    if (CALL(cuMemPoolImportFromShareableHandle(&imported, (void *)(uintptr_t)descriptor,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) == CUDA_SUCCESS)
        CALL_TWICE(cuMemPoolDestroy(imported));
    close(descriptor);
}

static const struct operation operations[] = {
    {"pool_create", 3, create},      {"pool_destroy", 2, destroy},        {"pool_allocate", 11, allocate},
    {"pool_free", 8, release},       {"pool_attributes", 5, attributes},  {"pool_trim", 3, trim},
    {"pool_choose", 2, choose},      {"pool_access", 2, access_rights},   {"pool_share", 1, share},
};
const struct family pool_family = FAMILY(operations);
