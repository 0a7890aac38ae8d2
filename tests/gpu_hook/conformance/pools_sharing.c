/* Memory pools between processes: a pool exported as a descriptor, and pointers told by data. */
#include "processes.h"

static CUmemoryPool new_pool(CUmemAllocationHandleType type)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = type,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    int types = 0;
    EXPECT_OK(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
    if (type & ~(unsigned)types)
        SKIP("pools of device 0 cannot be exported as descriptors");
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static uint32_t word_at(CUdeviceptr pointer)
{
    uint32_t word;
    EXPECT_OK(cuMemcpyDtoH(&word, pointer, 4));
    return word;
}

struct message {
    CUmemPoolPtrExportData data;
    size_t bytes;
};

static CUmemoryPool import(int descriptor)
{
    CUmemoryPool pool;
    EXPECT_OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)descriptor,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return pool;
}

/* Receives a pool and a pointer, expects 31 at its end, writes 32 at its start. */
static void import_and_answer(int socket)
{
    struct message message;
    CUdeviceptr pointer;
    int descriptor = peer_receive(socket, &message, sizeof message);
    check_start();
    CUmemoryPool pool = import(descriptor);
    EXPECT_OK(cuMemPoolImportPointer(&pointer, pool, &message.data));
    EXPECT_EQUAL(word_at(pointer + message.bytes - 4), 31);
    EXPECT_OK(cuMemsetD32(pointer, 32, 1));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemFree(pointer));
    peer_say(socket);
}

TEST(an_imported_pointer_is_the_exporters_memory)
{
    struct message message = {.bytes = 5 * MIB};
    CUdeviceptr before, pointer;
    int descriptor = -1;
    struct peer peer = peer_start(import_and_answer);
    check_start();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    EXPECT_OK(cuMemAllocFromPoolAsync(&before, 4096, pool, NULL));
    EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, message.bytes, pool, NULL));
    EXPECT_OK(cuMemsetD32(pointer, 31, message.bytes / 4));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_OK(cuMemPoolExportPointer(&message.data, pointer));
    peer_send(peer.socket, &message, sizeof message, descriptor);
    peer_hear(peer.socket);
    EXPECT_EQUAL(word_at(pointer), 32);
    EXPECT_EQUAL(word_at(pointer + 4), 31);
    peer_end(peer);
    EXPECT_OK(cuMemFreeAsync(pointer, NULL));
    EXPECT_OK(cuStreamSynchronize(NULL));
}

/* Receives a pool and a pointer; says what refuses. */
static void import_and_misuse(int socket)
{
    struct message message;
    CUdeviceptr pointer;
    size_t before, after, total;
    int descriptor = peer_receive(socket, &message, sizeof message);
    check_start();
    CUmemoryPool pool = import(descriptor);
    EXPECT(cuMemAllocFromPoolAsync(&pointer, 4096, pool, NULL) != CUDA_SUCCESS);
    EXPECT(cuDeviceSetMemPool(0, pool) != CUDA_SUCCESS);
    EXPECT_OK(cuMemGetInfo(&before, &total));
    EXPECT_OK(cuMemPoolImportPointer(&pointer, pool, &message.data));
    EXPECT_OK(cuMemGetInfo(&after, &total));
    EXPECT(before - after < message.bytes);
    EXPECT_OK(cuMemFreeAsync(pointer, NULL));
    EXPECT_OK(cuStreamSynchronize(NULL));
    EXPECT_OK(cuMemPoolDestroy(pool));
    peer_say(socket);
}

TEST(an_imported_pool_gives_nothing_of_its_own_and_costs_nothing)
{
    struct message message = {.bytes = 64 * MIB};
    CUdeviceptr pointer;
    int descriptor = -1;
    struct peer peer = peer_start(import_and_misuse);
    check_start();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, message.bytes, pool, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_OK(cuMemPoolExportPointer(&message.data, pointer));
    peer_send(peer.socket, &message, sizeof message, descriptor);
    peer_hear(peer.socket);
    peer_end(peer);
}

TEST(a_shareable_pool_keeps_and_gives_memory_as_others_do)
{
    CUdeviceptr pointer;
    cuuint64_t reserved = 1;
    check_start();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, 8 * MIB, pool, NULL));
        EXPECT_OK(cuMemsetD32Async(pointer, (unsigned)i, 2 * MIB, NULL));
        EXPECT_EQUAL(word_at(pointer + 8 * MIB - 4), i);
        EXPECT_OK(cuMemFreeAsync(pointer, NULL));
        EXPECT_OK(cuStreamSynchronize(NULL));
        EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
        EXPECT_EQUAL(reserved, 0);
    }
    EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST(a_pool_made_for_one_process_is_not_exported)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr pointer;
    int descriptor;
    check_start();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_NONE);
    EXPECT_CODE(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, 4096, pool, NULL));
    EXPECT_CODE(cuMemPoolExportPointer(&data, pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(exports_refuse_bad_arguments)
{
    int descriptor;
    check_start();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    EXPECT_CODE(cuMemPoolExportToShareableHandle(NULL, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolExportPointer(NULL, 4096), CUDA_ERROR_INVALID_VALUE);
}
