/* Symbol queries, answered as by the genuine driver, and export tables, of which there are none. */
#include "driver/resolver.h"

#include <string.h>

#include "implemented.h"
#include "device/log.h"

/* The highest version not above `version`; -1 is the newest. *known tells whether the name exists
 * at all. */
static void *find(const char *name, int version, int per_thread, int *known)
{
    int low = 0, high = query_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(queries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    void *found = NULL;
    int has_variant = 0;
    for (int i = low; i < query_count && strcmp(queries[i].name, name) == 0; i++) {
        *known = 1;
        has_variant |= queries[i].per_thread;
    }
    /* With the per-thread flag, a name that has such variants is not served by its plain ones. */
    int wanted = per_thread && has_variant;
    for (int i = low; i < query_count && strcmp(queries[i].name, name) == 0; i++)
        if (queries[i].per_thread == wanted && (version == -1 || queries[i].version <= version))
            found = queries[i].function;
    return found;
}

CUresult impl_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *symbolStatus)
{
    const cuuint64_t known_flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int known = 0;
    if (symbol == NULL || pfn == NULL || flags & ~known_flags)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = find(symbol, cudaVersion, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &known);
    if (symbolStatus)
        *symbolStatus = *pfn    ? CU_GET_PROC_ADDRESS_SUCCESS
                        : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

/* The first version has no status: an unknown name is an error, and the pointer stays unchanged. */
CUresult impl_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    void *found = NULL;
    if (pfn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = impl_cuGetProcAddress_v2(symbol, &found, cudaVersion, flags, NULL);
    if (result == CUDA_SUCCESS && found)
        *pfn = found;
    return result ? result : found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* There are no export tables, and none is imitated. For the runtime's interface the code is the one
 * whose text is true and findable, "CUDA driver is a stub library": it is what the runtime's user
 * reads. */
CUresult impl_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    static const unsigned char runtime_interface[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                        0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    if (ppExportTable == NULL || pExportTableId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = NULL;
    log_line("event=export_table_refused first_byte=%02x", (unsigned char)pExportTableId->bytes[0]);
    int is_runtime = memcmp(pExportTableId->bytes, runtime_interface, 16) == 0;
    return is_runtime ? CUDA_ERROR_STUB_LIBRARY : CUDA_ERROR_INVALID_VALUE;
}
