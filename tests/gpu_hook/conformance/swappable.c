/* The properties of large linear memory on which a program may rely, wherever the hook puts it
 * and however often it moves: the same as of any memory. Sizes are odd, and larger than a chunk. */
#include <dirent.h>

#include "capture.h"

#define LARGE (5 * MIB + 12345)

static CUdeviceptr large_memory(size_t bytes)
{
    CUdeviceptr pointer;
    EXPECT_OK(cuMemAlloc(&pointer, bytes));
    return pointer;
}

TEST(an_allocation_is_one_range)
{
    CUdeviceptr start = 0, address = 0;
    size_t bytes = 0;
    int device = -1;
    unsigned type = 0, is_mapped = 0, is_managed = 1;
    CUcontext context = check_start(), found = NULL;
    CUdeviceptr pointer = large_memory(LARGE), inside = pointer + 4 * MIB + 77;
    EXPECT_OK(cuMemGetAddressRange(&start, &bytes, inside));
    EXPECT_EQUAL(start, pointer);
    EXPECT_EQUAL(bytes, LARGE);
    EXPECT_OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    EXPECT_OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    EXPECT(start == pointer && bytes == LARGE);
    EXPECT_OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
    EXPECT_OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
    EXPECT(start == pointer && bytes == LARGE);
    EXPECT_OK(cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    EXPECT_EQUAL(address, inside);
    EXPECT_OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    EXPECT(found == context);
    EXPECT_OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    EXPECT_EQUAL(device, 0);
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    EXPECT_EQUAL(type, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, inside));
    EXPECT_EQUAL(is_mapped & 0xff, 1);
    EXPECT_OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
    EXPECT_EQUAL(is_managed & 0xff, 0);
    EXPECT_CODE(cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), CUDA_ERROR_INVALID_VALUE);
}

TEST(many_attributes_at_once_say_the_same)
{
    CUdeviceptr start = 0;
    size_t bytes = 0;
    void *host = &host, *pool = &pool;
    unsigned type = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *answers[] = {&start, &bytes, &host, &pool, &type};
    check_start();
    CUdeviceptr pointer = large_memory(LARGE);
    EXPECT_OK(cuPointerGetAttributes(5, asked, answers, pointer + 3 * MIB));
    EXPECT(start == pointer && bytes == LARGE && !host && !pool && type == CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_OK(cuPointerGetAttributes(5, asked, answers, pointer + 3 * MIB));
    EXPECT(!start && !bytes && !type);
}

TEST(allocations_have_identities_that_last)
{
    unsigned long long first, second, again;
    check_start();
    CUdeviceptr one = large_memory(LARGE), other = large_memory(LARGE);
    EXPECT_OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, one));
    EXPECT_OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    EXPECT_OK(cuMemsetD8(one, 1, LARGE));
    EXPECT_OK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, one + MIB));
    EXPECT(first == again && first != second);
}

TEST(a_freed_pointer_is_nobodys)
{
    CUdeviceptr start;
    size_t bytes;
    unsigned type;
    check_start();
    CUdeviceptr pointer = large_memory(LARGE);
    EXPECT_CODE(cuMemFree(pointer + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemGetAddressRange(&start, &bytes, pointer), CUDA_ERROR_NOT_FOUND);
    EXPECT_CODE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(linear_memory_is_no_mapping_of_the_programs)
{
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    check_start();
    ONLY_ON_THE_SOFTWARE_GPU();
    CUdeviceptr pointer = large_memory(4 * MIB);
    EXPECT_CODE(cuMemRetainAllocationHandle(&handle, (void *)pointer), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemSetAccess(pointer, 4 * MIB, &access, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemUnmap(pointer, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAddressFree(pointer, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemsetD8(pointer, 7, 4 * MIB));
    EXPECT_OK(cuMemFree(pointer));
}

TEST(memory_is_freed_from_another_context_and_not_from_none)
{
    CUcontext other, first;
    CUctxCreateParams none;
    memset(&none, 0, sizeof none);
    check_start();
    CUdeviceptr one = large_memory(LARGE), two = large_memory(LARGE);
    EXPECT_OK(cuCtxCreate(&other, &none, 0, 0));
    EXPECT_OK(cuMemFree(one));
    EXPECT_OK(cuCtxPopCurrent(&other));
    EXPECT_OK(cuCtxPopCurrent(&first));
    EXPECT_CODE(cuMemFree(two), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_OK(cuCtxSetCurrent(other));
    EXPECT_OK(cuMemFree(two));
    EXPECT_OK(cuCtxDestroy(other));
}

TEST(a_free_waits_for_the_work_of_its_context)
{
    check_start();
    CUdeviceptr pointer = large_memory(LARGE);
    CUevent event = an_event();
    CUstream stream = a_stream();
    CUDA_KERNEL_NODE_PARAMS spin = spin_kernel(20000000);
    EXPECT_OK(cuLaunchKernel(spin.func, 1, 1, 1, 1, 1, 1, 0, stream, spin.kernelParams, NULL));
    EXPECT_OK(cuMemsetD8Async(pointer, 1, LARGE, stream));
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_OK(cuEventQuery(event));
}

TEST(memory_goes_with_its_context)
{
    CUcontext context;
    CUctxCreateParams none;
    memset(&none, 0, sizeof none);
    check_start();
    size_t before = check_free_bytes();
    EXPECT_OK(cuCtxCreate(&context, &none, 0, 0));
    CUdeviceptr pointer = large_memory(LARGE);
    EXPECT_OK(cuMemsetD8(pointer, 1, LARGE));
    EXPECT_OK(cuCtxDestroy(context));
    EXPECT_TAKEN(before, 0);
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_strict_capture_refuses_and_a_relaxed_one_allows)
{
    CUdeviceptr more;
    check_start();
    CUdeviceptr pointer = large_memory(LARGE);
    size_t before = check_free_bytes();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_OK(cuMemAlloc(&more, LARGE));
    EXPECT_OK(cuMemFree(more));
    ended(stream, 0);
    EXPECT_TAKEN(before, 0);
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_CODE(cuMemAlloc(&more, LARGE), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(stream);
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(stream);
    EXPECT_OK(cuMemFree(pointer));
}

TEST(a_graph_finds_its_memory_where_it_was)
{
    uint32_t word = 0;
    check_start();
    CUdeviceptr pointer = large_memory(LARGE);
    check_builtin("aliquot_fill"); /* its module is not loaded during a capture */
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuMemsetD32Async(pointer, 4, MIB, stream));
    launch_fill(pointer + 4 * MIB, 9, stream);
    CUgraph graph = ended(stream, 2);
    CUgraphExec exec;
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(cuMemsetD8(pointer, 0, LARGE));
        EXPECT_OK(cuGraphLaunch(exec, stream));
        EXPECT_OK(cuStreamSynchronize(stream));
        EXPECT_OK(cuMemcpyDtoH(&word, pointer + 4 * MIB - 4, 4));
        EXPECT_EQUAL(word, 4);
        EXPECT_OK(cuMemcpyDtoH(&word, pointer + 4 * MIB, 4));
        EXPECT_EQUAL(word, 9);
    }
}

/* Word i of the chain holds the address of the next one, each in another allocation. */
TEST(addresses_that_lie_in_memory_stay_true)
{
    enum { LINKS = 16 };
    CUdeviceptr links[LINKS], result;
    check_start();
    CUfunction chase = check_builtin("aliquot_chase");
    for (int i = 0; i < LINKS; i++)
        links[i] = large_memory(2 * MIB + 4096);
    for (int i = 0; i < LINKS; i++)
        EXPECT_OK(cuMemcpyHtoD(links[i], &links[(i + 5) % LINKS], sizeof(CUdeviceptr)));
    EXPECT_OK(cuMemAlloc(&result, sizeof(CUdeviceptr)));
    uint64_t steps = 7;
    CUdeviceptr first = links[0], found = 0;
    void *arguments[] = {&first, &steps, &result};
    EXPECT_OK(cuLaunchKernel(chase, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    EXPECT_OK(cuMemcpyDtoH(&found, result, sizeof found));
    EXPECT_EQUAL(found, links[7 * 5 % LINKS]);
}

TEST(a_pitch_is_the_drivers_whatever_the_size)
{
    CUdeviceptr small, large;
    size_t small_pitch, large_pitch;
    unsigned char row[3000];
    check_start();
    EXPECT_OK(cuMemAllocPitch(&small, &small_pitch, 3000, 2, 4));
    EXPECT_OK(cuMemAllocPitch(&large, &large_pitch, 3000, 1500, 4));
    EXPECT_EQUAL(large_pitch, small_pitch);
    EXPECT_OK(cuMemsetD2D8(large, large_pitch, 6, 3000, 1500));
    EXPECT_OK(cuMemcpyDtoH(row, large + 1499 * large_pitch, sizeof row));
    EXPECT(row[0] == 6 && row[2999] == 6);
    EXPECT_OK(cuMemFree(large));
    EXPECT_OK(cuMemFree(small));
}

TEST(synchronous_operations_may_be_asked_for)
{
    unsigned is_on = 1;
    check_start();
    CUdeviceptr pointer = large_memory(LARGE);
    EXPECT_OK(cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    EXPECT_OK(cuMemsetD8(pointer, 1, LARGE));
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_CODE(cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(devices_copy_from_each_other_without_leave)
{
    CUcontext second;
    CUdeviceptr there;
    uint32_t word = 0;
    int count;
    CUcontext first = check_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count < 2)
        SKIP("one device");
    CUdeviceptr here = large_memory(LARGE);
    EXPECT_OK(cuMemsetD32(here, 11, LARGE / 4));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&second, 1));
    EXPECT_OK(cuCtxSetCurrent(second));
    EXPECT_OK(cuMemAlloc(&there, LARGE));
    EXPECT_OK(cuMemcpyPeer(there, second, here, first, LARGE));
    EXPECT_OK(cuMemcpyDtoH(&word, there + 5 * MIB, 4));
    EXPECT_EQUAL(word, 11);
    EXPECT_OK(cuMemFree(there));
    EXPECT_OK(cuMemFree(here));
    EXPECT_OK(cuDevicePrimaryCtxRelease(1));
}

static int count_lines(const char *path)
{
    int lines = 0, c;
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    while ((c = getc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

TEST(a_thousand_allocations_leave_nothing_behind)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemFree(large_memory(LARGE)));
    size_t before = check_free_bytes();
    int maps = count_lines("/proc/self/maps"), descriptors = count_descriptors();
    for (int i = 0; i < 1000; i++)
        if (cuMemAlloc(&pointer, (size_t)(i % 5 + 1) * MIB) != CUDA_SUCCESS || cuMemFree(pointer) != CUDA_SUCCESS)
            EXPECT(!"each of them can be had");
    EXPECT_TAKEN(before, 0);
    EXPECT(count_lines("/proc/self/maps") <= maps + 100); /* a thread, a stack, a heap: not one for each */
    EXPECT(count_descriptors() <= descriptors + 10);
}
