/* A library that behaves as NCCL does: it finds the driver by itself, makes buffers that other
 * processes may open, and frees them with the communicator. Compiled with NOT_NCCL it lacks NCCL's
 * public functions, and does the same. With -lNAME it needs another library that has them. */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

#ifdef NOT_NCCL
#define PUBLIC(name) other##name
#else
#define PUBLIC(name) nccl##name
#endif

static struct {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address, plain;
    size_t bytes;
    void *driver;
} communicator;

#define FIND(name) __typeof__(&name) do_##name = (__typeof__(&name))dlsym(communicator.driver, #name)

int PUBLIC(CommInitRank)(size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    communicator.driver = dlopen("libcuda.so.1", RTLD_NOW);
    communicator.bytes = bytes;
    FIND(cuMemCreate);
    FIND(cuMemAddressReserve);
    FIND(cuMemMap);
    FIND(cuMemSetAccess);
    CUresult result = do_cuMemCreate(&communicator.handle, bytes, &properties, 0);
    if (!result)
        result = do_cuMemAddressReserve(&communicator.address, bytes, 0, 0, 0);
    if (!result)
        result = do_cuMemMap(communicator.address, bytes, 0, communicator.handle, 0);
    return result ? (int)result : (int)do_cuMemSetAccess(communicator.address, bytes, &access, 1);
}

int PUBLIC(CommDestroy)(void)
{
    FIND(cuMemUnmap);
    FIND(cuMemAddressFree);
    FIND(cuMemRelease);
    CUresult result = do_cuMemUnmap(communicator.address, communicator.bytes);
    if (!result)
        result = do_cuMemRelease(communicator.handle);
    return result ? (int)result : (int)do_cuMemAddressFree(communicator.address, communicator.bytes);
}

/* As with NCCL_CUMEM_ENABLE=0: a plain buffer, shared by legacy IPC. */
int PUBLIC(SharePlain)(size_t bytes)
{
    CUipcMemHandle handle;
    communicator.driver = dlopen("libcuda.so.1", RTLD_NOW);
    __typeof__(&cuMemAlloc) allocate = (__typeof__(&cuMemAlloc))dlsym(communicator.driver, "cuMemAlloc_v2");
    FIND(cuIpcGetMemHandle);
    CUresult result = allocate(&communicator.plain, bytes);
    return result ? (int)result : (int)do_cuIpcGetMemHandle(&handle, communicator.plain);
}
