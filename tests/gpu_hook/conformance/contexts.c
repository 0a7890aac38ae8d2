/* Contexts: the stack of a thread, the primary context of a device, created ones, limits, and their errors. */
#include "check.h"

#include <pthread.h>

static CUcontext new_context(void)
{
    CUcontext context;
#if CUDA_VERSION >= 13000
    EXPECT_OK(cuCtxCreate(&context, NULL, 0, 0));
#else
    EXPECT_OK(cuCtxCreate(&context, 0, 0));
#endif
    return context;
}

static CUcontext current(void)
{
    CUcontext context = NULL;
    EXPECT_OK(cuCtxGetCurrent(&context));
    return context;
}

TEST(a_thread_begins_without_a_context)
{
    CUdevice device;
    CUcontext popped;
    EXPECT_OK(cuInit(0));
    EXPECT(current() == NULL);
    EXPECT_CODE(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(a_created_context_is_current_until_it_is_popped)
{
    CUcontext popped = NULL;
    EXPECT_OK(cuInit(0));
    CUcontext context = new_context();
    EXPECT(current() == context);
    EXPECT_OK(cuCtxPopCurrent(&popped));
    EXPECT(popped == context && current() == NULL);
    EXPECT_OK(cuCtxDestroy(context));
}

TEST(contexts_stack)
{
    CUcontext popped;
    CUcontext primary = check_start(), other = new_context();
    EXPECT(current() == other);
    EXPECT_OK(cuCtxPushCurrent(primary));
    EXPECT_OK(cuCtxPushCurrent(primary));
    EXPECT_OK(cuCtxPopCurrent(&popped));
    EXPECT(popped == primary && current() == primary);
    EXPECT_OK(cuCtxPopCurrent(&popped));
    EXPECT(current() == other);
    EXPECT_OK(cuCtxPopCurrent(&popped));
    EXPECT(current() == primary);
    EXPECT_OK(cuCtxDestroy(other));
}

TEST(destroying_the_current_context_pops_it)
{
    CUcontext primary = check_start(), other = new_context();
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT(current() == primary);
}

TEST(setting_no_context_leaves_none)
{
    check_start();
    EXPECT_OK(cuCtxSetCurrent(NULL));
    EXPECT(current() == NULL);
}

TEST(a_context_goes_with_its_memory)
{
    CUdeviceptr pointer;
    size_t before, after, total;
    check_start();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    CUcontext other = new_context();
    EXPECT_OK(cuMemAlloc(&pointer, 64 * MIB));
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_OK(cuMemGetInfo(&after, &total));
    EXPECT(after + 32 * MIB > before);
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(stream_ordered_memory_belongs_to_no_context)
{
    CUdeviceptr pointer;
    uint32_t word = 0;
    check_start();
    CUcontext other = new_context();
    EXPECT_OK(cuMemAllocAsync(&pointer, MIB, NULL));
    EXPECT_OK(cuMemsetD32(pointer, 77, 4));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_OK(cuMemcpyDtoH(&word, pointer, 4));
    EXPECT_EQUAL(word, 77);
    EXPECT_OK(cuMemFree(pointer));
}

struct guest {
    CUcontext context;
    pthread_barrier_t is_current, is_destroyed;
    CUresult answer;
};

static void *use_a_destroyed_context(void *argument)
{
    struct guest *guest = argument;
    CUdeviceptr pointer;
    cuCtxSetCurrent(guest->context);
    pthread_barrier_wait(&guest->is_current);
    pthread_barrier_wait(&guest->is_destroyed);
    guest->answer = cuMemAlloc(&pointer, 4);
    return NULL;
}

TEST(a_context_that_another_thread_destroyed_says_so)
{
    struct guest guest;
    pthread_t thread;
    check_start();
    guest.context = new_context();
    pthread_barrier_init(&guest.is_current, NULL, 2);
    pthread_barrier_init(&guest.is_destroyed, NULL, 2);
    pthread_create(&thread, NULL, use_a_destroyed_context, &guest);
    pthread_barrier_wait(&guest.is_current);
    EXPECT_OK(cuCtxDestroy(guest.context));
    pthread_barrier_wait(&guest.is_destroyed);
    pthread_join(thread, NULL);
    EXPECT_EQUAL(guest.answer, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST(the_primary_context_is_one_and_counts)
{
    CUcontext one, two;
    unsigned flags;
    int is_active = 1;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    EXPECT_EQUAL(is_active, 0);
    EXPECT_OK(cuDevicePrimaryCtxRetain(&one, 0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&two, 0));
    EXPECT(one == two);
    EXPECT_OK(cuDevicePrimaryCtxRelease(0));
    EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    EXPECT_EQUAL(is_active, 1);
    EXPECT_OK(cuDevicePrimaryCtxRelease(0));
    EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    EXPECT_EQUAL(is_active, 0);
    EXPECT_CODE(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(a_reset_primary_context_goes_with_its_memory)
{
    CUdeviceptr pointer;
    CUcontext context = check_start();
    EXPECT_OK(cuMemAlloc(&pointer, MIB));
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_retain_is_released_after_a_reset_too)
{
    check_start();
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT_OK(cuDevicePrimaryCtxRelease(0));
    EXPECT_CODE(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(devices_that_do_not_exist_are_invalid)
{
    CUcontext context;
    unsigned flags;
    int is_active;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuDevicePrimaryCtxRetain(&context, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDevicePrimaryCtxRelease(-1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDevicePrimaryCtxGetState(1000, &flags, &is_active), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDevicePrimaryCtxReset(1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST(null_places_for_a_context_are_invalid_values)
{
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuDevicePrimaryCtxRetain(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuCtxGetCurrent(NULL), CUDA_ERROR_INVALID_VALUE);
}

static void *look_for_context(void *found)
{
    *(CUcontext *)found = (CUcontext)1;
    cuCtxGetCurrent(found);
    return NULL;
}

TEST(a_threads_context_is_its_own)
{
    CUcontext elsewhere;
    pthread_t thread;
    CUcontext context = check_start();
    pthread_create(&thread, NULL, look_for_context, &elsewhere);
    pthread_join(thread, NULL);
    EXPECT(elsewhere == NULL && current() == context);
}

TEST(limits_are_kept_and_unknown_ones_refused)
{
    size_t value = 0;
    check_start();
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    EXPECT(value >= 4096);
    CUresult result = cuCtxGetLimit(&value, (CUlimit)0x7777);
    EXPECT(result == CUDA_ERROR_UNSUPPORTED_LIMIT || result == CUDA_ERROR_INVALID_VALUE);
}

TEST(each_context_has_an_identity)
{
    unsigned long long one, two;
    unsigned version = 0;
    CUcontext primary = check_start();
    EXPECT_OK(cuCtxGetId(primary, &one));
    EXPECT_OK(cuCtxGetId(new_context(), &two));
    EXPECT(one != two);
    EXPECT_OK(cuCtxGetApiVersion(primary, &version));
    EXPECT(version >= 3020);
}

TEST(peers_are_let_in_once)
{
    CUcontext own, other;
    int count, can_reach = 0;
    own = check_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count > 1)
        EXPECT_OK(cuDeviceCanAccessPeer(&can_reach, 0, 1));
    if (!can_reach)
        SKIP("no second device that is reached from the first");
    EXPECT_OK(cuDevicePrimaryCtxRetain(&other, 1));
    EXPECT(current() == own);
    EXPECT_CODE(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    EXPECT_CODE(cuCtxEnablePeerAccess(other, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuCtxEnablePeerAccess(other, 0));
    EXPECT_CODE(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    EXPECT_OK(cuCtxDisablePeerAccess(other));
    EXPECT_CODE(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

TEST(a_device_is_no_peer_of_itself)
{
    int can_reach = 1;
    check_start();
    EXPECT_OK(cuDeviceCanAccessPeer(&can_reach, 0, 0));
    EXPECT_EQUAL(can_reach, 0);
    EXPECT_CODE(cuDeviceCanAccessPeer(&can_reach, 0, 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST(an_attached_context_ends_with_its_last_use)
{
    CUcontext same = NULL;
    CUdeviceptr pointer;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuCtxAttach(&same, 0), CUDA_ERROR_INVALID_CONTEXT);
    CUcontext context = new_context();
    EXPECT_CODE(cuCtxAttach(&same, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuCtxAttach(&same, 0));
    EXPECT(same == context);
    EXPECT_OK(cuMemAlloc(&pointer, 4 * MIB));
    EXPECT_OK(cuCtxDetach(context));
    EXPECT_OK(cuMemsetD8(pointer, 1, 4 * MIB));
    EXPECT_OK(cuCtxDetach(context));
    EXPECT_CODE(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}
