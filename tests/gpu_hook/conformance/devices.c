/* Devices: counting and naming them, what they say of themselves, and the errors of that. */
#include "check.h"

TEST(ordinals_end_at_the_count)
{
    CUdevice device;
    int count = 0;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT(count >= 1);
    EXPECT_OK(cuDeviceGet(&device, count - 1));
    EXPECT_CODE(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGet(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_device_has_a_name_that_fits_its_place)
{
    char name[128] = "", cut[5] = "xxxx";
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetName(name, sizeof name, 0));
    EXPECT(strlen(name) > 0 && strlen(name) < sizeof name);
    EXPECT_OK(cuDeviceGetName(cut, sizeof cut, 0));
    EXPECT(strncmp(cut, name, 4) == 0);
    EXPECT_CODE(cuDeviceGetName(name, sizeof name, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGetName(NULL, 10, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_device_is_found_again_by_its_bus_id)
{
    char id[32] = "";
    CUdevice device = -1;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetPCIBusId(id, sizeof id, 0));
    EXPECT_OK(cuDeviceGetByPCIBusId(&device, id));
    EXPECT_EQUAL(device, 0);
    EXPECT_EITHER(cuDeviceGetByPCIBusId(&device, "ffff:fe:1d.0"), CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EITHER(cuDeviceGetByPCIBusId(&device, "no bus id"), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGetByPCIBusId(NULL, id), CUDA_ERROR_INVALID_VALUE);
}

TEST(each_device_has_a_uuid_of_its_own)
{
    CUuuid one, two;
    int count;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT_OK(cuDeviceGetUuid(&one, 0));
    if (count < 2)
        SKIP("one device only");
    EXPECT_OK(cuDeviceGetUuid(&two, 1));
    EXPECT(memcmp(&one, &two, sizeof one) != 0);
}

TEST(attributes_answer_and_wrong_ones_do_not)
{
    int value = -1;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    EXPECT_EQUAL(value, 32);
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
    EXPECT(value >= 512);
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT(value >= 1);
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    EXPECT_EQUAL(value, 1);
    EXPECT_CODE(cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetAttribute(&value, (CUdevice_attribute)30000, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST(free_memory_is_part_of_all_memory)
{
    size_t free_bytes = 0, total = 0, whole = 0;
    check_start();
    EXPECT_OK(cuMemGetInfo(&free_bytes, &total));
    EXPECT(free_bytes > 0 && free_bytes <= total);
    EXPECT_OK(cuDeviceTotalMem(&whole, 0));
    EXPECT(whole > 0);
    EXPECT_CODE(cuDeviceTotalMem(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceTotalMem(&whole, 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST(free_memory_is_a_contexts_to_ask)
{
    size_t free_bytes, total;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuMemGetInfo(&free_bytes, &total), CUDA_ERROR_INVALID_CONTEXT);
}
