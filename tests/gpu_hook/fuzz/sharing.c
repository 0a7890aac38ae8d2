/* Handles that other processes could open, opened here. */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

#define FILE_TYPE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static void share_handle(void)
{
    struct object *at;
    CUmemGenericAllocationHandle handle = pick(HANDLE, &at), imported = UNTOUCHED;
    int descriptor = -1;
    CUmemAllocationHandleType type = chance(95) ? FILE_TYPE : CU_MEM_HANDLE_TYPE_FABRIC;
    if (CALL(cuMemExportToShareableHandle(&descriptor, handle, type, 0)) != CUDA_SUCCESS)
        return;
    if (CALL(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)descriptor,
                                            FILE_TYPE)) == CUDA_SUCCESS) {
        note_handle("imported", HANDLE, imported);
        CALL_TWICE(cuMemRelease(imported));
    }
    close(descriptor);
}

static void import_nonsense(void)
{
    CUmemGenericAllocationHandle imported = UNTOUCHED;
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;
    int ends[2];
    if (pipe(ends) != 0)
        return;
    CALL(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)ends[0], FILE_TYPE));
    note_untouched("imported", imported);
    CALL(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)ends[0], FILE_TYPE, 0));
    note_untouched("pool", (uint64_t)pool);
    close(ends[0]);
    close(ends[1]);
}

static void between_processes(void)
{
    CUipcMemHandle memory;
    CUipcEventHandle event;
    struct object *at;
    uint64_t bytes;
    CUdeviceptr pointer = UNTOUCHED;
    memset(&memory, 0, sizeof memory);
    memset(&event, 0, sizeof event);
    settle();
    CALL(cuIpcGetMemHandle(&memory, pick_memory(&bytes)));
    CALL(cuIpcOpenMemHandle_v2(&pointer, memory, (unsigned)draw(2))); /* its own process may not open it */
    note_untouched("pointer", pointer);
    if (pointer != UNTOUCHED)
        CALL(cuIpcCloseMemHandle(pointer));
    CALL(cuIpcGetEventHandle(&event, (CUevent)pick(EVENT, &at)));
}

static const struct operation operations[] = {
    {"share_handle", 2, share_handle}, {"import_nonsense", 1, import_nonsense}, {"ipc", 1, between_processes},
};
const struct family sharing_family = FAMILY(operations);
