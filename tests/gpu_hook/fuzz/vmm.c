/* Virtual memory: handles, reservations, mappings. */
#include <string.h>

#include "fuzz.h"

#define UNIT (2 * MIB)

static CUmemAllocationProp properties(void)
{
    CUmemAllocationProp wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.type = chance(4) ? CU_MEM_ALLOCATION_TYPE_INVALID : CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = chance(4) ? CU_MEM_LOCATION_TYPE_INVALID : CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = draw_device();
    wanted.requestedHandleTypes = chance(70)   ? CU_MEM_HANDLE_TYPE_NONE
                                  : chance(90) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                               : (CUmemAllocationHandleType)draw(9);
    return wanted;
}

static void create(void)
{
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    CUmemAllocationProp wanted = properties();
    size_t bytes = chance(4) ? draw_bytes() : (1 + draw(4)) * UNIT, grain = UNTOUCHED;
    struct object *slot = room(HANDLE);
    CALL(cuMemGetAllocationGranularity(&grain, &wanted, (CUmemAllocationGranularity_flags)draw(chance(5) ? 4 : 2)));
    note("grain", grain);
    if (!slot)
        return;
    settle();
    CUmemGenericAllocationHandle *result = chance(2) ? NULL : &handle;
    if (CALL(cuMemCreate(result, bytes, chance(2) ? NULL : &wanted, chance(3) ? 1 : 0)) == CUDA_SUCCESS && result) {
        keep(slot, handle, bytes);
        slot->device = wanted.location.id;
    } else {
        note_untouched("handle", handle);
    }
}

static void let_go(struct object *at)
{
    if (--at->uses == 0)
        drop(at);
}

static void release(void)
{
    struct object *at;
    CUmemGenericAllocationHandle handle = pick(HANDLE, &at);
    settle();
    if (CALL(cuMemRelease(handle)) == CUDA_SUCCESS && at)
        let_go(at);
}

static void reserve(void)
{
    CUdeviceptr pointer = UNTOUCHED;
    struct object *slot = room(RESERVATION), *at;
    size_t bytes = chance(5) ? draw_bytes() : (1 + draw(8)) * UNIT;
    uint64_t hint = chance(20) ? pick(RESERVATION, &at) : 0;
    if (!slot)
        return;
    CUdeviceptr *result = chance(2) ? NULL : &pointer;
    /* The window itself begins at a multiple of 2 MiB. */
    size_t alignment = chance(80) ? 0 : 1ull << draw(22);
    if (CALL(cuMemAddressReserve(result, bytes, alignment, hint, chance(3) ? 1 : 0)) ==
            CUDA_SUCCESS && result) {
        note_address("pointer", pointer);
        keep(slot, pointer, bytes);
    } else {
        note_untouched("pointer", pointer);
    }
}

static void give_back(void)
{
    struct object *at;
    CUdeviceptr pointer = pick(RESERVATION, &at);
    settle();
    if (CALL(cuMemAddressFree(pointer, at && chance(96) ? at->bytes : draw(8) * UNIT)) == CUDA_SUCCESS && at)
        drop(at);
}

static void map(void)
{
    struct object *at, *where, *slot = room(MAPPING);
    CUmemGenericAllocationHandle handle = pick(HANDLE, &at);
    CUdeviceptr pointer = pick(RESERVATION, &where);
    size_t bytes = at && chance(96) ? at->bytes : draw(4) * UNIT;
    if (where)
        pointer += draw(1 + where->bytes / UNIT) * UNIT;
    if (chance(3))
        pointer += 4096;
    if (!slot)
        return;
    settle();
    if (CALL(cuMemMap(pointer, bytes, chance(3) ? UNIT : 0, handle, chance(2) ? 1 : 0)) == CUDA_SUCCESS) {
        keep(slot, pointer, bytes);
        slot->device = at ? at->device : 0;
    }
}

void end_mappings(uint64_t start, uint64_t bytes)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[MAPPING][i].state == LIVE && objects[MAPPING][i].value - start < bytes)
            drop(&objects[MAPPING][i]);
}

static void unmap(void)
{
    struct object *at, *where;
    CUdeviceptr pointer = pick(MAPPING, &at);
    size_t bytes = at ? at->bytes : UNIT;
    if (chance(15)) {
        pointer = pick(RESERVATION, &where);
        bytes = where ? where->bytes : UNIT;
    }
    if (chance(5))
        bytes = draw(3) * UNIT;
    settle();
    if (CALL(cuMemUnmap(pointer, bytes)) == CUDA_SUCCESS)
        end_mappings(pointer, bytes);
}

static void allow(void)
{
    struct object *at;
    CUdeviceptr pointer = pick(MAPPING, &at);
    CUmemAccessDesc access;
    unsigned long long flags = 0x55;
    memset(&access, 0, sizeof access);
    access.location.type = chance(3) ? CU_MEM_LOCATION_TYPE_INVALID : CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = at && chance(80) ? at->device : draw_device();
    access.flags = chance(80) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : (CUmemAccess_flags)draw(4);
    settle();
    if (chance(80))
        CALL(cuMemSetAccess(pointer, at && chance(95) ? at->bytes : UNIT, &access, chance(3) ? 0 : 1));
    CALL(cuMemGetAccess(&flags, &access.location, pointer));
    note("flags", flags);
}

static void retain(void)
{
    struct object *at;
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    CUdeviceptr pointer = pick(MAPPING, &at);
    if (CALL(cuMemRetainAllocationHandle(&handle, (void *)pointer)) != CUDA_SUCCESS) {
        note_untouched("handle", handle);
        return;
    }
    note_handle("handle", HANDLE, handle);
    for (int i = 0; i < SLOTS; i++)
        if (objects[HANDLE][i].state == LIVE && objects[HANDLE][i].value == handle) {
            objects[HANDLE][i].uses++;
            return;
        }
    struct object *slot = room(HANDLE);
    if (slot) {
        keep(slot, handle, at ? at->bytes : UNIT);
        slot->device = at ? at->device : 0;
    } else {
        CALL_TWICE(cuMemRelease(handle));
    }
}

static void ask(void)
{
    struct object *at;
    CUmemAllocationProp found;
    memset(&found, 0x55, sizeof found);
    CALL(cuMemGetAllocationPropertiesFromHandle(chance(3) ? NULL : &found, pick(HANDLE, &at)));
    note("type", found.type);
    note("location", (uint64_t)found.location.id);
}

static const struct operation operations[] = {
    {"handle_create", 7, create}, {"handle_release", 5, release}, {"reserve", 4, reserve},
    {"address_free", 3, give_back},
    {"map", 9, map},              {"unmap", 5, unmap},            {"allow", 6, allow},     {"retain", 3, retain},
    {"handle_ask", 1, ask},
};
const struct family vmm_family = FAMILY(operations);
