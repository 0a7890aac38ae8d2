/* The queries for other entry points. The real resolver answers first; the hook replaces the
 * answer only if it is the address of a function that the hook stands before, requested by its
 * own name. A function that the table lacks passes the gate. So versions, flags and errors are
 * the driver's own. */
#include "interpose/driver.h"
#include "interpose/entry_points.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "interpose/unknown_functions.h"

static void substitute(const char *asked, void **function)
{
    if (!settings()->is_on || !asked || !function || !*function)
        return;
    void *ours;
    if (entry_points_match(asked, *function, &ours)) {
        *function = ours ? ours : *function;
    } else {
        /* Queries come before cuInit: the count waits in a private page. */
        page_add(&page_hook()->unknown_symbols, 1);
        LOG("event=unknown_symbol name=%s", asked);
        *function = unknown_functions_gate(asked, *function);
    }
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUresult result = driver()->cuGetProcAddress(symbol, function, version, flags);
    if (result == CUDA_SUCCESS)
        substitute(symbol, function);
    return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUresult result = driver()->cuGetProcAddress_v2(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS)
        substitute(symbol, function);
    return result;
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version,
                                  cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUresult result = driver()->cuGetProcAddress_v2_ptsz(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS)
        substitute(symbol, function);
    return result;
}
