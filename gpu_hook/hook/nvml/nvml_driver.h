/* The real NVML's functions that the shim itself calls; as driver.h for the driver. */
#ifndef ALIQUOT_NVML_DRIVER_H
#define ALIQUOT_NVML_DRIVER_H

/* With this macro nvml.h leaves the old names alone, so every name is the one that is exported. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS

#include <stdbool.h>

#pragma GCC visibility push(default)
#include <nvml.h>

#include "nvml_memory_limits.h"
#pragma GCC visibility pop

struct nvml_driver {
#define CALLED(name) __typeof__(&name) name;
#define REPLACED(name) __typeof__(&name) name;
#include "nvml/nvml_calls.h"
};

/* Opens the real library at first use. */
const struct nvml_driver *nvml_driver(void);

/* False: there is no real library; every call answers LIBRARY_NOT_FOUND. */
bool nvml_driver_is_there(void);

#endif
