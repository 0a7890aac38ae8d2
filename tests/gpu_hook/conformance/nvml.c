/* NVML: its life, handles, structures with versions, lists that do not fit, and its agreement with the driver API. */
#include "check.h"

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <dlfcn.h>
#include <nvml.h>

/* By dlopen, as every client does: the tested library is the one that the loader finds. */
static void *find(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        SKIP("libnvidia-ml.so.1 does not load: %s", dlerror());
    return dlsym(library, name);
}

#define NVML(name) ((__typeof__(&name))find(#name))
#define EXPECT_NVML(call, want) EXPECT_EQUAL(call, want)

static nvmlDevice_t start(void)
{
    nvmlDevice_t device;
    EXPECT_NVML(NVML(nvmlInit_v2)(), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    return device;
}

TEST(nothing_answers_before_the_first_and_after_the_last_shutdown)
{
    unsigned count;
    EXPECT_NVML(NVML(nvmlDeviceGetCount_v2)(&count), NVML_ERROR_UNINITIALIZED);
    EXPECT_NVML(NVML(nvmlShutdown)(), NVML_ERROR_UNINITIALIZED);
    EXPECT_NVML(NVML(nvmlInit_v2)(), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlInitWithFlags)(0), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlShutdown)(), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetCount_v2)(&count), NVML_SUCCESS);
    EXPECT(count > 0);
    EXPECT_NVML(NVML(nvmlShutdown)(), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetCount_v2)(&count), NVML_ERROR_UNINITIALIZED);
}

TEST(a_device_has_one_handle_by_index_uuid_and_bus)
{
    nvmlDevice_t device = start(), by_uuid, by_bus;
    char uuid[96];
    nvmlPciInfo_t pci;
    unsigned index = 99, count;
    EXPECT_NVML(NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetPciInfo_v3)(device, &pci), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetHandleByUUID)(uuid, &by_uuid), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetHandleByPciBusId_v2)(pci.busId, &by_bus), NVML_SUCCESS);
    EXPECT(by_uuid == device && by_bus == device);
    EXPECT_NVML(NVML(nvmlDeviceGetIndex)(device, &index), NVML_SUCCESS);
    EXPECT_EQUAL(index, 0);
    EXPECT_NVML(NVML(nvmlDeviceGetCount_v2)(&count), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetHandleByIndex_v2)(count, &device), NVML_ERROR_INVALID_ARGUMENT);
    EXPECT_NVML(NVML(nvmlDeviceGetHandleByUUID)("GPU-00000000-0000-0000-0000-000000000000", &device),
                NVML_ERROR_NOT_FOUND);
}

TEST(the_driver_api_and_nvml_name_the_same_device)
{
    char bus[32], uuid[96], hex[33] = "";
    CUuuid own;
    nvmlDevice_t device;
    check_start();
    EXPECT_NVML(NVML(nvmlInit_v2)(), NVML_SUCCESS);
    EXPECT_OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    EXPECT_OK(cuDeviceGetUuid(&own, 0));
    EXPECT_NVML(NVML(nvmlDeviceGetHandleByPciBusId_v2)(bus, &device), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid), NVML_SUCCESS);
    for (const char *at = uuid + strlen("GPU-"); *at; at++)
        if (*at != '-')
            strncat(hex, at, 1);
    for (int i = 0; i < 16; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", (unsigned char)own.bytes[i]);
        EXPECT(strncmp(hex + 2 * i, digits, 2) == 0);
    }
}

TEST(memory_adds_up_in_both_versions)
{
    nvmlMemory_t first;
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    nvmlDevice_t device = start();
    EXPECT_NVML(NVML(nvmlDeviceGetMemoryInfo)(device, &first), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetMemoryInfo_v2)(device, &second), NVML_SUCCESS);
    EXPECT_EQUAL(first.used + first.free, first.total);
    EXPECT_EQUAL(second.used + second.free + second.reserved, second.total);
    EXPECT_EQUAL(first.total, second.total);
    EXPECT_NVML(NVML(nvmlDeviceGetMemoryInfo)(device, NULL), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(a_structure_of_an_unknown_version_is_a_mismatch)
{
    nvmlMemory_v2_t memory = {.version = 0};
    nvmlDevice_t device = start();
    EXPECT_NVML(NVML(nvmlDeviceGetMemoryInfo_v2)(device, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory.version = (unsigned)sizeof memory | 77u << 24;
    EXPECT_NVML(NVML(nvmlDeviceGetMemoryInfo_v2)(device, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

TEST(a_text_that_does_not_fit_is_an_insufficient_size)
{
    char one[1], name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    nvmlDevice_t device = start();
    EXPECT_NVML(NVML(nvmlDeviceGetName)(device, one, sizeof one), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT_NVML(NVML(nvmlDeviceGetName)(device, name, sizeof name), NVML_SUCCESS);
    EXPECT(name[0]);
    EXPECT_NVML(NVML(nvmlDeviceGetUUID)(device, one, sizeof one), NVML_ERROR_INSUFFICIENT_SIZE);
}

/* The lists differ in the processes that they may show; the calls are the same. */
TEST(a_list_is_asked_for_by_its_length_first)
{
    nvmlProcessInfo_t infos[256];
    nvmlDevice_t device;
    check_start();
    device = start();
    unsigned count = 0;
    nvmlReturn_t first = NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, NULL);
    EXPECT(count ? first == NVML_ERROR_INSUFFICIENT_SIZE : first == NVML_SUCCESS);
    count = 256;
    EXPECT_NVML(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, infos), NVML_SUCCESS);
    EXPECT(count < 256);
    count = 256;
    EXPECT_NVML(NVML(nvmlDeviceGetGraphicsRunningProcesses_v3)(device, &count, infos), NVML_SUCCESS);
    EXPECT_NVML(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, NULL, infos), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(utilisation_is_a_percentage)
{
    nvmlUtilization_t load;
    EXPECT_NVML(NVML(nvmlDeviceGetUtilizationRates)(start(), &load), NVML_SUCCESS);
    EXPECT(load.gpu <= 100 && load.memory <= 100);
}

TEST(samples_of_the_future_are_not_found)
{
    nvmlProcessUtilizationSample_t samples[256];
    unsigned count = 256;
    nvmlReturn_t found = NVML(nvmlDeviceGetProcessUtilization)(start(), samples, &count, UINT64_MAX / 2);
    if (found == NVML_ERROR_NOT_SUPPORTED)
        SKIP("the device does not sample processes");
    EXPECT_NVML(found, NVML_ERROR_NOT_FOUND);
}

TEST(field_values_are_told_one_by_one)
{
    nvmlFieldValue_t values[2] = {{.fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX}, {.fieldId = 0xFFFF}};
    EXPECT_NVML(NVML(nvmlDeviceGetFieldValues)(start(), 2, values), NVML_SUCCESS);
    EXPECT(values[1].nvmlReturn != NVML_SUCCESS);
}

TEST(errors_have_a_text)
{
    EXPECT(strcmp(NVML(nvmlErrorString)(NVML_SUCCESS), "Success") == 0);
    EXPECT(NVML(nvmlErrorString)(NVML_ERROR_INSUFFICIENT_SIZE)[0]);
}
