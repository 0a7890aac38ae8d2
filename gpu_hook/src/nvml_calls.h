/* Every function of NVML that the hook calls or replaces, named once; read as driver_calls.h is. */
#ifndef CALLED
#define CALLED(name)
#endif
#ifndef REPLACED
#define REPLACED(name)
#endif

CALLED(nvmlDeviceGetUUID)

REPLACED(nvmlInit)
REPLACED(nvmlInit_v2)
REPLACED(nvmlInitWithFlags)
REPLACED(nvmlErrorString)
REPLACED(nvmlDeviceGetMemoryInfo)
REPLACED(nvmlDeviceGetMemoryInfo_v2)

#undef CALLED
#undef REPLACED
