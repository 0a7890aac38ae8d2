/* Whether a graph with copy, memset and kernel nodes works on after its memory left and came back at the same address. */
#include <stdlib.h>
#include <string.h>

#include "probe.h"

#define WORDS (MIB / 4)

/* The range is [copied from host | set | written by a kernel | copied from the first part]. */
static void capture(CUstream stream, CUdeviceptr base, uint32_t *host, CUgraphExec *exec)
{
    CUgraph graph;
    CUfunction fill = probe_kernel("aliquot_fill");
    CUdeviceptr third = base + 2 * MIB;
    uint32_t value = 0x5a5a1234;
    uint64_t words = WORDS;
    void *arguments[] = {&third, &value, &words};
    MUST(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(CU(cuMemcpyHtoDAsync)(base, host, MIB, stream));
    MUST(CU(cuMemsetD32Async)(base + MIB, 0x77777777, WORDS, stream));
    probe_launch(fill, stream, arguments);
    MUST(CU(cuMemcpyDtoDAsync)(base + 3 * MIB, base, MIB, stream));
    MUST(CU(cuStreamEndCapture)(stream, &graph));
    MUST(CU(cuGraphInstantiateWithFlags)(exec, graph, 0));
}

static long count_wrong(CUdeviceptr base, const uint32_t *host)
{
    uint32_t *found = malloc(4 * MIB);
    long wrong = 0;
    MUST(CU(cuMemcpyDtoH)(found, base, 4 * MIB));
    for (size_t i = 0; i < WORDS; i++)
        wrong += (found[i] != host[i]) + (found[WORDS + i] != 0x77777777) + (found[2 * WORDS + i] != 0x5a5a1234) +
                 (found[3 * WORDS + i] != host[i]);
    free(found);
    return wrong;
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp wanted = probe_pinned();
    MUST(CU(cuMemCreate)(&handle, bytes, &wanted, 0));
    return handle;
}

void probe_graph(const char *unused)
{
    CUdeviceptr base;
    CUstream stream;
    CUgraphExec exec;
    uint32_t *host;
    const size_t bytes = 4 * MIB;
    (void)unused;
    probe_start();
    MUST(CU(cuMemHostAlloc)((void **)&host, MIB, 0));
    for (size_t i = 0; i < WORDS; i++)
        host[i] = (uint32_t)(i * 2654435761u);
    MUST(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    MUST(CU(cuMemAddressReserve)(&base, bytes, 0, 0, 0));
    CUmemGenericAllocationHandle handle = create(bytes);
    probe_map(base, bytes, handle);
    capture(stream, base, host, &exec);
    for (int round = 0; round < 3; round++) {
        if (round) { /* other memory at the same address */
            MUST(CU(cuMemUnmap)(base, bytes));
            CUmemGenericAllocationHandle next = create(bytes);
            MUST(CU(cuMemRelease)(handle));
            handle = next;
            probe_map(base, bytes, handle);
            MUST(CU(cuMemsetD8)(base, 0, bytes));
            MUST(CU(cuCtxSynchronize)());
        }
        int launch = (int)CU(cuGraphLaunch)(exec, stream), end = (int)CU(cuStreamSynchronize)(stream);
        long wrong = launch || end ? -1 : count_wrong(base, host);
        probe_say("graph", "\"remapped\": %d, \"launch\": %d, \"end\": %d, \"wrong_words\": %ld", round, launch, end,
                  wrong);
    }
}
