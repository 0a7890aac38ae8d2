/* Legacy IPC of memory: cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle. */
#include "processes.h"

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct parcel {
    CUipcMemHandle handle;
    size_t bytes;
};

static void fill(CUdeviceptr pointer, uint32_t value, size_t bytes)
{
    EXPECT_OK(cuMemsetD32(pointer, value, bytes / 4));
    EXPECT_OK(cuCtxSynchronize());
}

static uint32_t word(CUdeviceptr pointer)
{
    uint32_t found = 0;
    EXPECT_OK(cuMemcpyDtoH(&found, pointer, sizeof found));
    return found;
}

/* Opens what comes, expects 51 in it, writes 52, and closes it when told. */
static void open_and_answer(int socket)
{
    struct parcel parcel;
    CUdeviceptr pointer, again, start;
    size_t bytes;
    peer_receive(socket, &parcel, sizeof parcel);
    check_start();
    size_t before = check_free_bytes();
    EXPECT_OK(cuIpcOpenMemHandle(&pointer, parcel.handle, LAZY));
    EXPECT_EQUAL(word(pointer), 51);
    EXPECT_EQUAL(word(pointer + parcel.bytes - 4), 51);
    EXPECT_OK(cuMemGetAddressRange(&start, &bytes, pointer));
    EXPECT(start <= pointer && pointer + parcel.bytes <= start + bytes); /* a driver shares the block around it */
    EXPECT(check_free_bytes() + 4 * MIB > before); /* what is opened is not paid for again */
    fill(pointer, 52, 4);
    EXPECT_OK(cuIpcOpenMemHandle(&again, parcel.handle, LAZY)); /* counted, not mapped twice */
    EXPECT_EQUAL(again, pointer);
    peer_say(socket);
    peer_hear(socket);
    if (check_is_software()) /* for a driver: undefined */
        EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuIpcCloseMemHandle(pointer));
    EXPECT_EQUAL(word(pointer), 53);
    EXPECT_OK(cuIpcCloseMemHandle(pointer));
    EXPECT_CODE(cuIpcCloseMemHandle(pointer), CUDA_ERROR_INVALID_VALUE);
}

static void share(size_t bytes)
{
    struct peer peer = peer_start(open_and_answer);
    struct parcel parcel = {.bytes = bytes};
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, bytes));
    fill(pointer, 51, bytes);
    EXPECT_OK(cuIpcGetMemHandle(&parcel.handle, pointer));
    peer_send(peer.socket, &parcel, sizeof parcel, -1);
    peer_hear(peer.socket);
    EXPECT_EQUAL(word(pointer), 52);
    EXPECT_EQUAL(word(pointer + bytes - 4), 51);
    fill(pointer, 53, 4);
    peer_say(peer.socket);
    peer_end(peer);
    EXPECT_EQUAL(word(pointer), 53);
    EXPECT_OK(cuMemFree(pointer));
}

TEST(opened_memory_is_the_exporters_memory)
{
    share(8 * MIB);
}

TEST(small_allocations_are_shared_too)
{
    share(4096);
}

TEST(many_allocations_keep_their_bytes_when_one_is_shared)
{
    CUdeviceptr pointers[512];
    CUipcMemHandle handle;
    check_start();
    for (uint32_t i = 0; i < 512; i++) {
        EXPECT_OK(cuMemAlloc(&pointers[i], 20000));
        EXPECT_OK(cuMemsetD32(pointers[i], i, 5000));
    }
    for (uint32_t i = 0; i < 512; i += 100)
        EXPECT_OK(cuIpcGetMemHandle(&handle, pointers[i]));
    for (uint32_t i = 0; i < 512; i++) {
        EXPECT_EQUAL(word(pointers[i]), i);
        EXPECT_EQUAL(word(pointers[i] + 19996), i);
        EXPECT_OK(cuMemFree(pointers[i]));
    }
}

TEST(the_own_handle_cannot_be_opened)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer, opened;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, 2 * MIB));
    EXPECT_OK(cuIpcGetMemHandle(&handle, pointer));
    EXPECT_CODE(cuIpcOpenMemHandle(&opened, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuIpcOpenMemHandle(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuIpcCloseMemHandle(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_handle_may_be_had_twice_and_memory_is_not_allocated_for_it)
{
    CUipcMemHandle first, second;
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, 2 * MIB));
    size_t before = check_free_bytes();
    EXPECT_OK(cuIpcGetMemHandle(&first, pointer));
    EXPECT_OK(cuIpcGetMemHandle(&second, pointer));
    EXPECT_EQUAL(memcmp(&first, &second, sizeof first), 0);
    EXPECT_TAKEN(before, 0);
}

TEST(only_plain_device_memory_has_a_handle)
{
    CUipcMemHandle handle;
    CUdeviceptr managed, pooled, plain;
    check_start();
    EXPECT_CODE(cuIpcGetMemHandle(&handle, 4096), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT_CODE(cuIpcGetMemHandle(&handle, managed), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAllocAsync(&pooled, MIB, NULL));
    EXPECT_CODE(cuIpcGetMemHandle(&handle, pooled), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAlloc(&plain, MIB));
    EXPECT_CODE(cuIpcGetMemHandle(NULL, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(plain));
    EXPECT_CODE(cuIpcGetMemHandle(&handle, plain), CUDA_ERROR_INVALID_VALUE);
}

TEST(pointer_attributes_tell_what_can_be_shared)
{
    unsigned plain_can = 9, pooled_can = 9;
    CUdeviceptr plain, pooled;
    check_start();
    EXPECT_OK(cuMemAlloc(&plain, 2 * MIB));
    EXPECT_OK(cuMemAllocAsync(&pooled, 2 * MIB, NULL));
    EXPECT_OK(cuPointerGetAttribute(&plain_can, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, plain));
    EXPECT_OK(cuPointerGetAttribute(&pooled_can, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pooled));
    EXPECT_EQUAL(plain_can & 0xff, 1);
    EXPECT_EQUAL(pooled_can & 0xff, 0);
}
