/* The attribute table. A capability that is not there reads 0: clients ask before they use it. */
#include "driver.h"
#include "implemented.h"
#include "launch_limits.h"

#define A(name) [CU_DEVICE_ATTRIBUTE_##name]

static const int attributes[CU_DEVICE_ATTRIBUTE_MAX] = {
    A(MAX_THREADS_PER_BLOCK) = LIMIT_BLOCK_THREADS,
    A(MAX_BLOCK_DIM_X) = LIMIT_BLOCK_X,
    A(MAX_BLOCK_DIM_Y) = LIMIT_BLOCK_Y,
    A(MAX_BLOCK_DIM_Z) = LIMIT_BLOCK_Z,
    A(MAX_GRID_DIM_X) = LIMIT_GRID_X,
    A(MAX_GRID_DIM_Y) = LIMIT_GRID_Y,
    A(MAX_GRID_DIM_Z) = LIMIT_GRID_Z,
    A(MAX_SHARED_MEMORY_PER_BLOCK) = LIMIT_SHARED_BYTES,
    A(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) = LIMIT_SHARED_BYTES_OPTIN,
    A(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) = LIMIT_SHARED_BYTES_SM,
    A(RESERVED_SHARED_MEMORY_PER_BLOCK) = LIMIT_SHARED_BYTES_RESERVED,
    A(TOTAL_CONSTANT_MEMORY) = 65536,
    A(WARP_SIZE) = 32,
    A(MAX_PITCH) = 2147483647,
    A(MAX_REGISTERS_PER_BLOCK) = 65536,
    A(MAX_REGISTERS_PER_MULTIPROCESSOR) = 65536,
    A(CLOCK_RATE) = 1000000,
    A(MEMORY_CLOCK_RATE) = 1000000,
    A(GLOBAL_MEMORY_BUS_WIDTH) = 256,
    A(L2_CACHE_SIZE) = 4 << 20,
    A(TEXTURE_ALIGNMENT) = 512,
    A(TEXTURE_PITCH_ALIGNMENT) = 32,
    A(SURFACE_ALIGNMENT) = 512,
    A(GPU_OVERLAP) = 1,
    A(ASYNC_ENGINE_COUNT) = 2,
    A(CAN_MAP_HOST_MEMORY) = 1,
    A(COMPUTE_MODE) = CU_COMPUTEMODE_DEFAULT,
    A(CONCURRENT_KERNELS) = 1,
    A(MAX_THREADS_PER_MULTIPROCESSOR) = LIMIT_SM_THREADS,
    A(MAX_BLOCKS_PER_MULTIPROCESSOR) = LIMIT_SM_BLOCKS,
    A(UNIFIED_ADDRESSING) = 1,
    A(COMPUTE_CAPABILITY_MAJOR) = MACHINE_CAPABILITY_MAJOR,
    A(COMPUTE_CAPABILITY_MINOR) = MACHINE_CAPABILITY_MINOR,
    A(STREAM_PRIORITIES_SUPPORTED) = 1,
    A(GLOBAL_L1_CACHE_SUPPORTED) = 1,
    A(LOCAL_L1_CACHE_SUPPORTED) = 1,
    A(COMPUTE_PREEMPTION_SUPPORTED) = 1,
    A(COOPERATIVE_LAUNCH) = 1,
    A(HOST_REGISTER_SUPPORTED) = 1,
    A(MEMORY_POOLS_SUPPORTED) = 1,
    A(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) = 1,
    A(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) = 1,
    A(HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) = 1,
    A(HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) = 1,
    A(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) = 2,
    /* Served from the machine, or absent: managed memory, IPC, graphs' memory, multicast, arrays. */
};

#undef A

CUresult impl_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (pi == NULL || (int)attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    switch ((int)attrib) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *pi = (int)driver.seat.machine->sm_count;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *pi = MACHINE_PCI_DOMAIN;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *pi = (int)driver.physical[dev];
        break;
    default:
        *pi = attributes[attrib];
    }
    return CUDA_SUCCESS;
}
