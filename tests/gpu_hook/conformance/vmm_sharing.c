/* Virtual memory management between processes: handles exported as descriptors. */
#include "processes.h"
#include "vmm.h"

static CUmemGenericAllocationHandle create_shareable(size_t bytes)
{
    CUmemAllocationProp properties = vmm_properties(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle;
    int is_supported = 0;
    EXPECT_OK(cuDeviceGetAttribute(&is_supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    if (!is_supported)
        SKIP("memory of device 0 cannot be exported as a descriptor");
    EXPECT_OK(cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

static int export(CUmemGenericAllocationHandle handle)
{
    int descriptor = -1;
    EXPECT_OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(descriptor >= 0);
    return descriptor;
}

static CUmemGenericAllocationHandle import(int descriptor)
{
    CUmemGenericAllocationHandle handle;
    EXPECT_OK(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr address = vmm_reserve(bytes);
    EXPECT_OK(cuMemMap(address, bytes, 0, handle, 0));
    EXPECT_OK(vmm_allow(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return address;
}

/* Receives memory, expects 21 in it, writes 22, and says so. */
static void import_and_answer(int socket)
{
    size_t bytes;
    int descriptor = peer_receive(socket, &bytes, sizeof bytes);
    vmm_start();
    CUdeviceptr address = map(import(descriptor), bytes);
    close(descriptor);
    EXPECT_EQUAL(vmm_word(address + bytes - 4), 21);
    EXPECT_OK(cuMemsetD32(address, 22, 1));
    EXPECT_OK(cuCtxSynchronize());
    peer_say(socket);
    peer_hear(socket);
    EXPECT_EQUAL(vmm_word(address), 23);
}

TEST(imported_memory_is_the_exporters_memory)
{
    struct peer peer = peer_start(import_and_answer);
    vmm_start();
    size_t unit = vmm_unit();
    CUmemGenericAllocationHandle handle = create_shareable(unit);
    CUdeviceptr address = map(handle, unit);
    EXPECT_OK(cuMemsetD32(address, 21, unit / 4));
    EXPECT_OK(cuCtxSynchronize());
    int descriptor = export(handle);
    peer_send(peer.socket, &unit, sizeof unit, descriptor);
    peer_hear(peer.socket);
    EXPECT_EQUAL(vmm_word(address), 22);
    EXPECT_OK(cuMemsetD32(address, 23, 1));
    EXPECT_OK(cuCtxSynchronize());
    peer_say(peer.socket);
    peer_end(peer);
}

static void export_and_wait(int socket)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUmemGenericAllocationHandle handle = create_shareable(unit);
    CUdeviceptr address = map(handle, unit);
    EXPECT_OK(cuMemsetD32(address, 31, unit / 4));
    EXPECT_OK(cuCtxSynchronize());
    peer_send(socket, &unit, sizeof unit, export(handle));
    peer_hear(socket);
}

TEST(imported_memory_outlives_a_killed_exporter)
{
    struct peer peer = peer_start(export_and_wait);
    size_t unit = 0;
    int descriptor = peer_receive(peer.socket, &unit, sizeof unit);
    vmm_start();
    CUdeviceptr address = map(import(descriptor), unit);
    close(descriptor);
    peer_kill(peer);
    EXPECT_EQUAL(vmm_word(address + unit - 4), 31);
    EXPECT_OK(cuMemsetD32(address, 32, 1));
    EXPECT_EQUAL(vmm_word(address), 32);
}

TEST(an_import_into_the_own_process_costs_nothing)
{
    vmm_start();
    size_t unit = vmm_unit(), before = check_free_bytes();
    CUmemGenericAllocationHandle handle = create_shareable(unit);
    int descriptor = export(handle);
    CUmemGenericAllocationHandle again = import(descriptor);
    close(descriptor);
    EXPECT_TAKEN(before, unit);
    CUdeviceptr first = map(handle, unit), second = map(again, unit);
    EXPECT_OK(cuMemsetD32(first, 41, 1));
    EXPECT_EQUAL(vmm_word(second), 41);
    EXPECT_OK(cuMemUnmap(first, unit));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_TAKEN(before, unit);
    EXPECT_OK(cuMemUnmap(second, unit));
    EXPECT_OK(cuMemRelease(again));
    EXPECT_TAKEN(before, 0);
}

TEST(only_what_was_made_shareable_is_exported)
{
    int descriptor = -1;
    vmm_start();
    size_t unit = vmm_unit();
    CUmemGenericAllocationHandle handle = vmm_create(unit), shareable = create_shareable(unit);
    CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_CODE(cuMemExportToShareableHandle(&descriptor, handle, type, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemExportToShareableHandle(NULL, shareable, type, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemExportToShareableHandle(&descriptor, shareable, type, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemExportToShareableHandle(&descriptor, shareable, CU_MEM_HANDLE_TYPE_NONE, 0),
                CUDA_ERROR_INVALID_VALUE);
}

TEST(a_descriptor_of_something_else_is_not_imported)
{
    int ends[2];
    CUmemGenericAllocationHandle handle;
    vmm_start();
    EXPECT_EQUAL(pipe(ends), 0);
    CUresult result = cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)ends[0],
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    EXPECT(result != CUDA_SUCCESS);
    EXPECT(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}
