/* Entry points that begin everything: cuInit, and the queries for other entry points. The real resolver answers
 * first; what it returned is replaced only if it is the address of a function that we replace, asked for by its own
 * name. So versions, flags and errors are the driver's own. */
#include "activation.h"
#include "driver.h"
#include "entry_points.h"
#include "log.h"
#include "page.h"

#include <string.h>

struct replacement {
    const char *name;
    void *real;
    void *ours;
};

CUresult cuInit(unsigned int flags)
{
    CUresult result = driver()->cuInit(flags);
    if (result == CUDA_SUCCESS)
        activation_begin();
    return result;
}

/* A driver may serve several functions by one address ("not supported"), so the name decides too: what was asked
 * for, or that with a version or stream suffix. */
static bool is_variant_of(const char *name, const char *asked)
{
    size_t length = strlen(asked);
    return strncmp(name, asked, length) == 0 && (name[length] == '\0' || name[length] == '_');
}

static void *find_replacement(const char *asked, void *real)
{
    const struct driver *calls = driver();
    const struct replacement replacements[] = {
#define REPLACED(name) {#name, (void *)calls->name, (void *)name},
#define COUNTED(name) {#name, (void *)calls->name, (void *)name},
#include "driver_calls.h"
    };
    for (size_t i = 0; i < sizeof replacements / sizeof *replacements; i++)
        if (replacements[i].real == real && is_variant_of(replacements[i].name, asked))
            return replacements[i].ours;
    return NULL;
}

static void substitute(const char *asked, void **function)
{
    if (!settings()->is_on || !asked || !function || !*function)
        return;
    void *ours = find_replacement(asked, *function);
    if (ours) {
        *function = ours;
    } else if (!entry_points_knows(*function)) {
        /* Queries come before cuInit, so the page may not be there yet: the count waits in a private one. */
        if (page_prepare())
            page_add(&page_hook()->unknown_symbols, 1);
        LOG("event=unknown_symbol name=%s", asked);
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

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    CUresult result = driver()->cuGetProcAddress_v2_ptsz(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS)
        substitute(symbol, function);
    return result;
}
