/* The state of the driver in this process, once cuInit made it. */
#include "driver/driver.h"

#include <sys/stat.h>

#include "device/slots.h"
#include "implemented.h"

struct driver driver;

CUresult impl_cuDriverGetVersion(int *driverVersion)
{
    if (driverVersion == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = MACHINE_CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult driver_check_device(CUdevice device)
{
    return device >= 0 && device < driver.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUdevice driver_ordinal(unsigned physical)
{
    CUdevice device = 0;
    while (device < driver.device_count - 1 && driver.physical[device] != physical)
        device++;
    return device;
}

unsigned driver_place(CUdevice device)
{
    return slots_place(&driver.attachment, driver.physical[device]);
}

unsigned driver_told_place(CUdevice device, enum driver_identity kind)
{
    return driver.stale >= kind ? driver.physical[device] : driver_place(device);
}

int driver_find_place(unsigned place)
{
    for (CUdevice device = 0; device < driver.device_count; device++)
        if (driver_place(device) == place)
            return device;
    return -1;
}

uint64_t driver_machine_identity(void)
{
    struct stat found;
    return fstat(driver.attachment.descriptor, &found) == 0 ? (uint64_t)found.st_ino : 0;
}

int driver_is_lost(CUdevice device)
{
    struct device *found = &driver.attachment.machine->devices[driver_place(device)];
    return atomic_load_explicit(&found->is_lost, memory_order_relaxed) != 0;
}
