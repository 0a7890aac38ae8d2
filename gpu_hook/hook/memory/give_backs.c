/* Entry points that only give memory back, and charge nothing. They wait for the end of a move and
 * wake no kernel, because a program calls them when it ends. */
#include "base/guard.h"
#include "interpose/driver.h"
#include "gate/residency.h"

#define DEFINE_GIVE_BACK(name, type)           \
    CUresult name(type given)                  \
    {                                          \
        if (!guard_enter())               \
            return driver()->name(given);      \
        residency_hold();                      \
        CUresult result = driver()->name(given); \
        residency_release();                   \
        guard_leave();                    \
        return result;                         \
    }

DEFINE_GIVE_BACK(cuModuleUnload, CUmodule)
DEFINE_GIVE_BACK(cuLibraryUnload, CUlibrary)
DEFINE_GIVE_BACK(cuIpcCloseMemHandle, CUdeviceptr)
DEFINE_GIVE_BACK(cuDestroyExternalMemory, CUexternalMemory)
