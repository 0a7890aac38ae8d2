/* Page-locked host memory: allocated and registered, what it says of itself, and its errors. */
#include "check.h"

TEST(locked_memory_is_memory)
{
    unsigned char *memory;
    check_start();
    EXPECT_OK(cuMemAllocHost((void **)&memory, 1 << 20));
    memset(memory, 1, 1 << 20);
    EXPECT_EQUAL(memory[(1 << 20) - 1], 1);
    EXPECT_OK(cuMemFreeHost(memory));
}

TEST(locked_memory_takes_none_of_the_device)
{
    size_t before, after, total;
    void *memory;
    check_start();
    EXPECT_OK(cuMemAllocHost(&memory, 4096));
    EXPECT_OK(cuMemFreeHost(memory));
    EXPECT_OK(cuMemGetInfo(&before, &total));
    EXPECT_OK(cuMemHostAlloc(&memory, 64 * MIB, CU_MEMHOSTALLOC_PORTABLE));
    EXPECT_OK(cuMemGetInfo(&after, &total));
    EXPECT(after + 32 * MIB > before);
    EXPECT_OK(cuMemFreeHost(memory));
}

TEST(flags_are_told_again)
{
    unsigned flags = 0;
    void *memory;
    check_start();
    EXPECT_OK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
    EXPECT_OK(cuMemHostGetFlags(&flags, memory));
    EXPECT(flags & CU_MEMHOSTALLOC_PORTABLE);
    EXPECT(flags & CU_MEMHOSTALLOC_WRITECOMBINED);
}

TEST(the_device_reaches_locked_memory)
{
    uint32_t *memory, value = 21;
    uint64_t count = 256;
    CUdeviceptr pointer = 0;
    check_start();
    EXPECT_OK(cuMemHostAlloc((void **)&memory, 1024, CU_MEMHOSTALLOC_DEVICEMAP));
    EXPECT_OK(cuMemHostGetDevicePointer(&pointer, memory, 0));
    void *arguments[] = {&pointer, &value, &count};
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_fill"), 1, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(memory[255], 21);
    EXPECT_CODE(cuMemHostGetDevicePointer(&pointer, memory, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(memory_of_the_program_is_registered_once)
{
    void *memory;
    check_start();
    EXPECT_EQUAL(posix_memalign(&memory, 4096, 1 << 16), 0);
    EXPECT_OK(cuMemHostRegister(memory, 1 << 16, CU_MEMHOSTREGISTER_PORTABLE));
    EXPECT_CODE(cuMemHostRegister(memory, 1 << 16, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_OK(cuMemHostUnregister(memory));
    EXPECT_CODE(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_OK(cuMemHostRegister(memory, 1 << 16, 0));
    EXPECT_OK(cuMemHostUnregister(memory));
}

TEST(a_pointer_is_known_as_host_memory)
{
    unsigned type = 0;
    void *memory, *host = NULL;
    check_start();
    EXPECT_OK(cuMemAllocHost(&memory, 4096));
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)memory));
    EXPECT_EQUAL(type, CU_MEMORYTYPE_HOST);
    EXPECT_OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, (CUdeviceptr)(uintptr_t)memory));
    EXPECT(host == memory);
}

TEST(host_memory_refuses_bad_arguments)
{
    void *memory = NULL;
    check_start();
    EXPECT_CODE(cuMemHostAlloc(&memory, 4096, 0x80), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemHostAlloc(NULL, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemHostRegister(NULL, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemHostRegister(&memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFreeHost(&memory), CUDA_ERROR_INVALID_VALUE);
}

TEST(host_memory_needs_a_context)
{
    void *memory;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuMemAllocHost(&memory, 4096), CUDA_ERROR_INVALID_CONTEXT);
}
