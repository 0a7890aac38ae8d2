/* Linear, pitched, managed and page-locked memory, and how much there is. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define REGION_BYTES (256 * 1024)

static _Alignas(4096) unsigned char region[REGION_BYTES]; /* to be registered in parts */

static void allocate(void)
{
    CUdeviceptr pointer = UNTOUCHED;
    struct object *slot = room(POINTER);
    size_t bytes = draw_bytes();
    if (!slot)
        return;
    settle();
    CUdeviceptr *result = chance(2) ? NULL : &pointer;
    if (CALL(cuMemAlloc_v2(result, bytes)) == CUDA_SUCCESS && result) {
        note_address("pointer", pointer);
        keep_owned(slot, pointer, bytes);
    } else {
        note_untouched("pointer", pointer);
    }
}

static void allocate_pitch(void)
{
    CUdeviceptr pointer = UNTOUCHED;
    size_t pitch = UNTOUCHED, width = chance(5) ? draw_bytes() : draw(5000), height = draw(2000);
    struct object *slot = room(POINTER);
    if (!slot)
        return;
    settle();
    CUdeviceptr *result = chance(2) ? NULL : &pointer;
    if (CALL(cuMemAllocPitch_v2(result, chance(2) ? NULL : &pitch, width, height, chance(4) ? 3 : 4u << draw(3))) ==
            CUDA_SUCCESS && result) {
        note_address("pointer", pointer);
        note("pitch", pitch);
        keep_owned(slot, pointer, pitch * height);
    } else {
        note_untouched("pointer", pointer);
        note_untouched("pitch", pitch);
    }
}

static void allocate_managed(void)
{
    CUdeviceptr pointer = UNTOUCHED;
    size_t bytes = draw_bytes();
    struct object *slot = has_managed() ? room(POINTER) : NULL;
    if (!slot)
        return;
    settle();
    CUdeviceptr *result = chance(2) ? NULL : &pointer;
    unsigned flags = chance(5) ? (unsigned)draw(9) : chance(50) ? CU_MEM_ATTACH_GLOBAL : CU_MEM_ATTACH_HOST;
    if (CALL(cuMemAllocManaged(result, bytes, flags)) == CUDA_SUCCESS && result)
        keep_owned(slot, pointer, bytes);
    else
        note_untouched("pointer", pointer);
}

static void release(void)
{
    struct object *at;
    CUdeviceptr pointer = pick(POINTER, &at);
    settle();
    if (chance(5)) {
        pointer += 1 + draw(600);
        at = NULL;
    }
    if (CALL(cuMemFree_v2(pointer)) == CUDA_SUCCESS && at)
        drop(at);
}

static void host_allocate(void)
{
    void *pointer = (void *)UNTOUCHED;
    size_t bytes = chance(90) ? 1 + draw(BUFFER_BYTES) : draw_bytes();
    struct object *slot = room(HOST);
    if (!slot)
        return;
    void **result = chance(2) ? NULL : &pointer;
    CUresult code = chance(50) ? CALL(cuMemAllocHost_v2(result, bytes))
                               : CALL(cuMemHostAlloc(result, bytes, chance(5) ? 0x80 : (unsigned)draw(8)));
    if (code == CUDA_SUCCESS && result) {
        memset(pointer, 0, bytes < BUFFER_BYTES ? bytes : BUFFER_BYTES);
        keep(slot, (uint64_t)pointer, bytes);
    } else {
        note_untouched("pointer", (uint64_t)pointer);
    }
}

static void host_release(void)
{
    struct object *at;
    void *pointer = (void *)pick(HOST, &at);
    settle();
    if (CALL(cuMemFreeHost(pointer)) == CUDA_SUCCESS && at)
        drop(at);
}

static void host_register(void)
{
    struct object *slot = room(REGISTERED);
    size_t start = draw(REGION_BYTES), bytes = chance(4) ? 0 : 1 + draw(REGION_BYTES - start);
    unsigned flags = chance(5) ? 0x80 : (unsigned)draw(4);
    if (!slot)
        return;
    void *pointer = chance(3) ? NULL : region + (chance(50) ? start / 4096 * 4096 : start);
    if (CALL(cuMemHostRegister_v2(pointer, bytes, flags)) == CUDA_SUCCESS)
        keep(slot, (uint64_t)pointer, bytes);
}

static void host_unregister(void)
{
    struct object *at;
    void *pointer = (void *)pick(REGISTERED, &at);
    settle();
    if (CALL(cuMemHostUnregister(pointer)) == CUDA_SUCCESS && at)
        drop(at);
}

static void host_ask(void)
{
    struct object *at;
    unsigned flags = 0x55;
    CUdeviceptr pointer = UNTOUCHED;
    void *host = (void *)pick(chance(60) ? HOST : REGISTERED, &at);
    CALL(cuMemHostGetFlags(&flags, host));
    note("flags", flags);
    if (CALL(cuMemHostGetDevicePointer_v2(&pointer, host, chance(4) ? 1 : 0)) == CUDA_SUCCESS)
        note_address("pointer", pointer);
    else
        note_untouched("pointer", pointer);
}

static void information(void)
{
    size_t free_bytes = UNTOUCHED, total_bytes = UNTOUCHED, device_bytes = UNTOUCHED;
    settle();
    CALL(cuMemGetInfo_v2(chance(3) ? NULL : &free_bytes, chance(3) ? NULL : &total_bytes));
    note_size("free", free_bytes);
    note_size("total", total_bytes);
    CALL(cuDeviceTotalMem_v2(&device_bytes, draw_device()));
    note_size("device", device_bytes);
}

static void move(void)
{
    uint64_t bytes;
    CUdeviceptr pointer = pick_memory(&bytes);
    CUstream stream = pick_stream();
    begin_work(stream);
    CALL(cuMemPrefetchAsync(pointer, bytes, chance(30) ? CU_DEVICE_CPU : draw_device(), stream));
    settle();
}

static void advise(void)
{
    uint64_t bytes;
    CUdeviceptr pointer = pick_memory(&bytes);
    int answer = 0x5555;
    CALL(cuMemAdvise(pointer, bytes, (CUmem_advise)draw(8), draw_device()));
    CALL(cuMemRangeGetAttribute(&answer, sizeof answer, (CUmem_range_attribute)draw(6), pointer, bytes));
    note("answer", (uint64_t)answer);
}

static const struct operation operations[] = {
    {"allocate", 14, allocate},        {"allocate_pitch", 4, allocate_pitch},
    {"allocate_managed", 5, allocate_managed}, {"free", 15, release},
    {"host_allocate", 5, host_allocate}, {"host_free", 4, host_release},
    {"host_register", 4, host_register}, {"host_unregister", 3, host_unregister},
    {"host_ask", 2, host_ask},         {"information", 5, information},
    {"prefetch", 3, move},             {"advise", 2, advise},
};
const struct family memory_family = FAMILY(operations);
