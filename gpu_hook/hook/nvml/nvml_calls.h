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
REPLACED(nvmlDeviceGetHandleByUUID)
REPLACED(nvmlDeviceGetHandleByUUIDV)
REPLACED(nvmlDeviceGetHandleByPciBusId)
REPLACED(nvmlDeviceGetHandleByPciBusId_v2)
REPLACED(nvmlDeviceGetMemoryInfo)
REPLACED(nvmlDeviceGetMemoryInfo_v2)
REPLACED(nvmlDeviceGetUtilizationRates)
REPLACED(nvmlDeviceGetProcessUtilization)
REPLACED(nvmlDeviceGetProcessesUtilizationInfo)
REPLACED(nvmlDeviceGetComputeRunningProcesses)
REPLACED(nvmlDeviceGetComputeRunningProcesses_v2)
REPLACED(nvmlDeviceGetComputeRunningProcesses_v3)
REPLACED(nvmlDeviceGetGraphicsRunningProcesses)
REPLACED(nvmlDeviceGetGraphicsRunningProcesses_v2)
REPLACED(nvmlDeviceGetGraphicsRunningProcesses_v3)
REPLACED(nvmlDeviceGetMPSComputeRunningProcesses)
REPLACED(nvmlDeviceGetMPSComputeRunningProcesses_v2)
REPLACED(nvmlDeviceGetMPSComputeRunningProcesses_v3)
REPLACED(nvmlDeviceGetRunningProcessDetailList)
REPLACED(nvmlDeviceSetMemoryLimits_v1)

#undef CALLED
#undef REPLACED
