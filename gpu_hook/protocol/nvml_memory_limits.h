/* The memory limits that NVML has since release 615, for builds with an older nvml.h; include it after that. tools/check-nvml
 * compares both declarations. */
#ifndef ALIQUOT_NVML_MEMORY_LIMITS_H
#define ALIQUOT_NVML_MEMORY_LIMITS_H

#include <stddef.h>

#ifndef NVML_DEVICE_MEMORY_LIMIT_MAX
#define NVML_DEVICE_MEMORY_LIMIT_MAX 0xFFFFFFFFFFFFFFFF
typedef struct {
    const char *nameSpace; /* the cgroup's folder */
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;
#endif

/* With the header's own declarations, these make the compiler compare the types. */
nvmlReturn_t DECLDIR nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits);
nvmlReturn_t DECLDIR nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits);

_Static_assert(sizeof(nvmlSetMemoryLimits_v1_t) == 24, "set");
_Static_assert(offsetof(nvmlSetMemoryLimits_v1_t, softLimit) == 8, "set soft");
_Static_assert(offsetof(nvmlSetMemoryLimits_v1_t, hardLimit) == 16, "set hard");
_Static_assert(sizeof(nvmlGetMemoryLimits_v1_t) == 32, "get");
_Static_assert(offsetof(nvmlGetMemoryLimits_v1_t, softLimit) == 8, "get soft");
_Static_assert(offsetof(nvmlGetMemoryLimits_v1_t, hardLimit) == 16, "get hard");
_Static_assert(offsetof(nvmlGetMemoryLimits_v1_t, currentUsed) == 24, "get used");

#endif
