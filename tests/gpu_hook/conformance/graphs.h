/* The shared parts of the graph families: memory of WORDS words, and the parameters of nodes
 * that work on it. */
#ifndef ALIQUOT_CONFORMANCE_GRAPHS_H
#define ALIQUOT_CONFORMANCE_GRAPHS_H

#include "check.h"

#define WORDS 256

static inline CUstream a_stream(void)
{
    CUstream stream;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline CUdeviceptr some_memory(void)
{
    CUdeviceptr pointer;
    EXPECT_OK(cuMemAlloc(&pointer, WORDS * 4));
    EXPECT_OK(cuMemsetD32(pointer, 0, WORDS));
    return pointer;
}

static inline uint32_t word_of(CUdeviceptr pointer)
{
    uint32_t words[WORDS];
    EXPECT_OK(cuMemcpyDtoH(words, pointer, sizeof words));
    for (int i = 1; i < WORDS; i++)
        EXPECT_EQUAL(words[i], words[0]);
    return words[0];
}

/* aliquot_fill(pointer, value, words); what the arguments point to may go after the call. */
static inline CUDA_KERNEL_NODE_PARAMS fill_kernel(CUdeviceptr pointer, uint32_t value)
{
    static CUdeviceptr to;
    static uint32_t what;
    static uint64_t words = WORDS;
    static void *arguments[] = {&to, &what, &words};
    to = pointer;
    what = value;
    return (CUDA_KERNEL_NODE_PARAMS){.func = check_builtin("aliquot_fill"), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments};
}

static inline CUDA_KERNEL_NODE_PARAMS spin_kernel(uint64_t nanoseconds)
{
    static uint64_t time;
    static void *arguments[] = {&time};
    time = nanoseconds;
    return (CUDA_KERNEL_NODE_PARAMS){.func = check_builtin("aliquot_spin"), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments};
}

static inline CUDA_MEMCPY3D line(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
                           .WidthInBytes = bytes, .Height = 1, .Depth = 1};
}

static inline CUDA_MEMSET_NODE_PARAMS set_words(CUdeviceptr to, uint32_t value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .value = value, .elementSize = 4, .width = WORDS, .height = 1};
}

static inline CUgraphExec instantiated(CUgraph graph)
{
    CUgraphExec exec;
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static inline void run(CUgraphExec exec, CUstream stream)
{
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
}

static inline void count(void *counter)
{
    __atomic_add_fetch((int *)counter, 1, __ATOMIC_SEQ_CST);
}

#endif
