/* The locations that managed memory may have. */
#ifndef SOFTGPU_MANAGED_LOCATIONS_H
#define SOFTGPU_MANAGED_LOCATIONS_H

#include <cuda.h>

/* The location that a device number means: CU_DEVICE_CPU is the host. */
CUmemLocation managed_location_of(CUdevice device);
CUresult managed_check_location(const CUmemLocation *location);

#endif
