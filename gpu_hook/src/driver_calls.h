/* Every function of the driver that the hook calls or replaces, named once. The build reads the REPLACED and
 * COUNTED rows to leave these names out of the generated forwarders; driver.c reads all rows to find the real ones.
 *
 * CALLED: used by the hook, forwarded for the user. REPLACED: has a body of ours. COUNTED: takes device memory in
 * a family that is not charged; passes through and is counted as unaccounted.
 */
#ifndef CALLED
#define CALLED(name)
#endif
#ifndef REPLACED
#define REPLACED(name)
#endif
#ifndef COUNTED
#define COUNTED(name)
#endif

CALLED(cuCtxGetApiVersion)
CALLED(cuCtxGetCurrent)
CALLED(cuCtxGetDevice)
CALLED(cuDeviceGetCount)
CALLED(cuDeviceGetDefaultMemPool)
CALLED(cuDeviceGetUuid)
CALLED(cuDevicePrimaryCtxGetState)
CALLED(cuMemGetDefaultMemPool)
CALLED(cuPointerGetAttribute)
CALLED(cuStreamGetCtx)
CALLED(cuStreamGetDevice)
CALLED(cuStreamIsCapturing)
CALLED(cuStreamIsCapturing_ptsz)

REPLACED(cuInit)
REPLACED(cuGetProcAddress)
REPLACED(cuGetProcAddress_v2)
REPLACED(cuGetProcAddress_v2_ptsz)

REPLACED(cuMemAlloc)
REPLACED(cuMemAlloc_v2)
REPLACED(cuMemAllocPitch)
REPLACED(cuMemAllocPitch_v2)
REPLACED(cuMemAllocManaged)
REPLACED(cuMemFree)
REPLACED(cuMemFree_v2)
REPLACED(cuMemAllocAsync)
REPLACED(cuMemAllocAsync_ptsz)
REPLACED(cuMemAllocFromPoolAsync)
REPLACED(cuMemAllocFromPoolAsync_ptsz)
REPLACED(cuMemFreeAsync)
REPLACED(cuMemFreeAsync_ptsz)
REPLACED(cuMemPoolCreate)
REPLACED(cuMemPoolDestroy)
REPLACED(cuMemCreate)
REPLACED(cuMemRelease)
REPLACED(cuMemRetainAllocationHandle)
REPLACED(cuMemMap)
REPLACED(cuMemUnmap)

REPLACED(cuCtxCreate)
REPLACED(cuCtxCreate_v2)
REPLACED(cuCtxCreate_v3)
REPLACED(cuCtxCreate_v4)
REPLACED(cuCtxDestroy)
REPLACED(cuCtxDestroy_v2)
REPLACED(cuCtxDetach)
REPLACED(cuCtxSetCurrent)
REPLACED(cuCtxPushCurrent)
REPLACED(cuCtxPushCurrent_v2)
REPLACED(cuCtxPopCurrent)
REPLACED(cuCtxPopCurrent_v2)
REPLACED(cuDevicePrimaryCtxRetain)
REPLACED(cuDevicePrimaryCtxRelease)
REPLACED(cuDevicePrimaryCtxRelease_v2)
REPLACED(cuDevicePrimaryCtxReset)
REPLACED(cuDevicePrimaryCtxReset_v2)

REPLACED(cuMemGetInfo)
REPLACED(cuMemGetInfo_v2)
REPLACED(cuDeviceTotalMem)
REPLACED(cuDeviceTotalMem_v2)

REPLACED(cuLaunch)
REPLACED(cuLaunchGrid)
REPLACED(cuLaunchGridAsync)
REPLACED(cuLaunchKernel)
REPLACED(cuLaunchKernel_ptsz)
REPLACED(cuLaunchKernelEx)
REPLACED(cuLaunchKernelEx_ptsz)
REPLACED(cuLaunchCooperativeKernel)
REPLACED(cuLaunchCooperativeKernel_ptsz)
REPLACED(cuLaunchCooperativeKernelMultiDevice)
REPLACED(cuGraphLaunch)
REPLACED(cuGraphLaunch_ptsz)

COUNTED(cuArrayCreate)
COUNTED(cuArrayCreate_v2)
COUNTED(cuArray3DCreate)
COUNTED(cuArray3DCreate_v2)
COUNTED(cuMipmappedArrayCreate)
COUNTED(cuExternalMemoryGetMappedBuffer)
COUNTED(cuExternalMemoryGetMappedMipmappedArray)
COUNTED(cuGraphAddMemAllocNode)
COUNTED(cuGraphAddNode)
COUNTED(cuGraphAddNode_v2)
COUNTED(cuMemImportFromShareableHandle)

#undef CALLED
#undef REPLACED
#undef COUNTED
