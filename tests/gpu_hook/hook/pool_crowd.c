/* Threads that take from one pool at the same moment until they are refused. After each round, while all hold what they
 * got, compares what is charged with what the pool has reserved. Prints: rounds that differ, successes, refusals. */
#include <cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 16
#define TAKEN 4
#define LARGEST (12u << 20)

static struct {
    pthread_barrier_t barrier;
    CUcontext context;
    CUmemoryPool pool;
    int rounds;
    int differing; /* changed by one thread at a time */
    unsigned succeeded, refused;
} state;

static void compare(void)
{
    size_t free_bytes, total_bytes;
    cuuint64_t reserved;
    cuMemGetInfo(&free_bytes, &total_bytes);
    cuMemPoolGetAttribute(state.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    state.differing += total_bytes - free_bytes != reserved;
}

static void *work(void *number)
{
    unsigned seed = *(unsigned *)number;
    CUdeviceptr held[TAKEN];
    cuCtxSetCurrent(state.context);
    for (int round = 0; round < state.rounds; round++) {
        int count = 0;
        pthread_barrier_wait(&state.barrier);
        for (int i = 0; i < TAKEN; i++)
            if (cuMemAllocAsync(&held[count], 1 + rand_r(&seed) % LARGEST, NULL) == CUDA_SUCCESS)
                count++;
        __atomic_fetch_add(&state.succeeded, (unsigned)count, __ATOMIC_RELAXED);
        __atomic_fetch_add(&state.refused, (unsigned)(TAKEN - count), __ATOMIC_RELAXED);
        if (pthread_barrier_wait(&state.barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            compare();
        pthread_barrier_wait(&state.barrier);
        while (count)
            cuMemFreeAsync(held[--count], NULL);
        cuStreamSynchronize(NULL);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    state.rounds = count > 1 ? atoi(arguments[1]) : 1000;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&state.context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(state.context) != CUDA_SUCCESS || cuDeviceGetDefaultMemPool(&state.pool, 0) != CUDA_SUCCESS)
        return 1;
    pthread_barrier_init(&state.barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%d %u %u\n", state.differing, state.succeeded, state.refused);
    return 0;
}
