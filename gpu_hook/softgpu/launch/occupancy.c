/* Occupancy: threads, blocks and shared memory of an SM; registers are never the limit. */
#include "launch/occupancy.h"

#include "driver/driver.h"
#include "driver/green.h"
#include "implemented.h"
#include "driver/launch_limits.h"
#include "modules/modules.h"

int occupancy_blocks(int block_threads, size_t dynamic_shared_bytes)
{
    if (block_threads < 1 || block_threads > LIMIT_BLOCK_THREADS || dynamic_shared_bytes > LIMIT_SHARED_BYTES_OPTIN)
        return 0;
    int warps = (block_threads + 31) / 32;
    int blocks = LIMIT_SM_THREADS / (warps * 32);
    int by_shared = (int)(LIMIT_SHARED_BYTES_SM / (dynamic_shared_bytes + LIMIT_SHARED_BYTES_RESERVED));
    if (blocks > LIMIT_SM_BLOCKS)
        blocks = LIMIT_SM_BLOCKS;
    return blocks < by_shared ? blocks : by_shared;
}

CUresult impl_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                   size_t dynamicSMemSize, unsigned int flags)
{
    if (function_of(func) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (numBlocks == NULL || blockSize < 1 || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    *numBlocks = occupancy_blocks(blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
}

CUresult impl_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                          size_t dynamicSMemSize)
{
    return impl_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

CUresult impl_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                        CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                        size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
    int best_blocks = 0, best_size = 0;
    if (function_of(func) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (minGridSize == NULL || blockSize == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (blockSizeLimit <= 0 || blockSizeLimit > LIMIT_BLOCK_THREADS)
        blockSizeLimit = LIMIT_BLOCK_THREADS;
    for (int size = (blockSizeLimit + 31) / 32 * 32; size > 0; size -= 32) {
        int threads = size < blockSizeLimit ? size : blockSizeLimit;
        size_t shared = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(threads) : dynamicSMemSize;
        int blocks = occupancy_blocks(threads, shared);
        if (blocks * threads > best_blocks * best_size) {
            best_blocks = blocks;
            best_size = threads;
        }
    }
    *blockSize = best_size;
    *minGridSize = best_blocks * (int)driver.attachment.machine->sm_count;
    return best_size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                               CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                               int blockSizeLimit)
{
    return impl_cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                          dynamicSMemSize, blockSizeLimit, 0);
}

CUresult impl_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
                                                      int blockSize)
{
    if (function_of(func) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (dynamicSmemSize == NULL || numBlocks < 1 || occupancy_blocks(blockSize, 0) < numBlocks)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = LIMIT_SHARED_BYTES_SM / (size_t)numBlocks - LIMIT_SHARED_BYTES_RESERVED;
    *dynamicSmemSize = bytes < LIMIT_SHARED_BYTES_OPTIN ? bytes : LIMIT_SHARED_BYTES_OPTIN;
    return CUDA_SUCCESS;
}

/* Its first block of a wave waits for none; the whole device's time is that of its own waves. */
uint64_t occupancy_nanoseconds(const struct green *green, uint64_t nanoseconds, uint64_t blocks, unsigned block_threads,
                           size_t shared_bytes)
{
    int on_each = green ? occupancy_blocks((int)block_threads, shared_bytes) : 0;
    if (on_each <= 0 || blocks == 0)
        return nanoseconds;
    uint64_t at_once = (uint64_t)on_each * green->resource.sm.smCount;
    uint64_t whole = (uint64_t)on_each * driver.attachment.machine->sm_count;
    uint64_t waves = (blocks + at_once - 1) / at_once, whole_waves = (blocks + whole - 1) / whole;
    return nanoseconds * waves / whole_waves;
}
