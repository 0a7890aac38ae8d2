/* Devices, errors, and functions asked for by name. */
#include <string.h>

#include "fuzz.h"

static void device(void)
{
    CUdevice found = 55;
    int value = 0x5555, device = draw_device();
    char name[64];
    CUuuid uuid;
    memset(name, 0, sizeof name);
    memset(&uuid, 0, sizeof uuid);
    CALL(cuDeviceGet(&found, device));
    note("device", (uint64_t)found);
    CALL(cuDeviceGetAttribute(&value, (CUdevice_attribute)draw(150), device));
    note("value", (uint64_t)value);
    CALL(cuDeviceGetName(name, (int)draw(64), device));
    note_bytes("name", name, sizeof name);
    CALL(cuDeviceGetUuid_v2(&uuid, device));
    note_bytes("uuid", &uuid, sizeof uuid);
    CALL(cuDeviceGetPCIBusId(name, 64, device));
    note_bytes("bus", name, sizeof name);
}

static void whole(void)
{
    int count = 55, version = 55;
    CALL(cuInit(chance(5) ? 1 : 0));
    CALL(cuDeviceGetCount(chance(3) ? NULL : &count));
    note("count", (uint64_t)count);
    CALL(cuDriverGetVersion(&version));
    note("version", (uint64_t)version);
}

static void errors(void)
{
    const char *text = NULL;
    CUresult code = (CUresult)draw(1000);
    CALL(cuGetErrorName(code, &text));
    note_bytes("name", text ? text : "", text ? strlen(text) : 0);
    CALL(cuGetErrorString(code, &text));
    note_bytes("text", text ? text : "", text ? strlen(text) : 0);
}

static void by_name(void)
{
    static const char *const names[] = {"cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuCtxSynchronize", "cuMemGetInfo",
                                        "cuMemAlloc_v2", "cuNothing", "", "cuGetProcAddress", "cuMemAllocAsync"};
    static const int versions[] = {0, 2000, 3020, 7000, 11020, 12000, 13000, 99999};
    void *function = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)55;
    CALL(cuGetProcAddress_v2(names[draw(10)], &function, versions[draw(8)], draw(chance(4) ? 9 : 4), &status));
    note("is_there", function != NULL);
    note("status", status);
}

static void call_by_name(void)
{
    CUresult (*allocate)(CUdeviceptr *, size_t) = NULL;
    CUdeviceptr pointer = UNTOUCHED;
    struct object *slot = room(POINTER);
    size_t bytes = draw_bytes();
    if (!slot || cuGetProcAddress_v2("cuMemAlloc", (void **)&allocate, 12000, 0, NULL) != CUDA_SUCCESS)
        return;
    settle();
    if (CALL(allocate(&pointer, bytes)) == CUDA_SUCCESS)
        keep_owned(slot, pointer, bytes);
}

static const struct operation operations[] = {
    {"device", 3, device}, {"whole", 1, whole}, {"errors", 1, errors}, {"by_name", 2, by_name},
    {"call_by_name", 2, call_by_name},
};
const struct family query_family = FAMILY(operations);
