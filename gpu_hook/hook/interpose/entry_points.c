#include "interpose/entry_points.h"

#include "base/log.h"
#include "base/version.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_once_t once, once_known;
    void *handle;
    struct entry_library library;
    void **known; /* by ascending address; NULL if there was no memory for them */
    unsigned known_count;
} state = {.once = PTHREAD_ONCE_INIT, .once_known = PTHREAD_ONCE_INIT};

static int compare_addresses(const void *left, const void *right)
{
    const char *a = *(void *const *)left, *b = *(void *const *)right;
    return (a > b) - (a < b);
}

/* Return the first row whose name begins with the first bytes of `asked`, and does not come
 * before `after` there. */
static unsigned find_name(const char *asked, size_t length, char after)
{
    unsigned low = 0, high = entry_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = strncmp(entry_name(middle), asked, length);
        if (order < 0 || (order == 0 && entry_name(middle)[length] < after))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_name(unsigned index, const char *asked, size_t length, char after)
{
    return index < entry_count && strncmp(entry_name(index), asked, length) == 0 &&
           entry_name(index)[length] == after;
}

/* -1: there is none. */
static int find_row(const char *name)
{
    size_t length = strlen(name);
    unsigned row = find_name(name, length, '\0');
    return is_name(row, name, length, '\0') ? (int)row : -1;
}

/* The shim opens the driver under a spelling of its own. The loader answers a repeated name with
 * its first answer, without asking the audit redirector: clients must not get the driver by its
 * usual path because the shim opened it, nor the shim itself because a client was redirected. */
static void *open_real(const struct entry_library *library)
{
    if (!library->path) {
        LOG("event=no_real_library variable=%s reason=not_set", library->variable);
        return NULL;
    }
    if (library->path[0] != '/') {
        LOG("event=no_real_library variable=%s path=%s reason=not_absolute", library->variable,
            library->path);
        return NULL;
    }
    size_t length = strlen(library->path);
    char *path = malloc(length + 3); /* PATH_MAX bytes of the stack would be a page more */
    if (!path)
        return NULL;
    memcpy(path, "/.", 2);
    memcpy(path + 2, library->path, length + 1); /* no printf at a program's start */
    void *handle = dlopen(path, RTLD_LOCAL | RTLD_NOW);
    free(path);
    if (!handle) {
        const char *reason = dlerror();
        LOG("event=no_real_library variable=%s reason=\"%s\"", library->variable,
            reason ? reason : "unknown");
        return NULL;
    }
    if (dlsym(handle, ALIQUOT_HOOK_MARKER)) {
        LOG("event=no_real_library variable=%s path=%s reason=is_the_shim", library->variable,
            library->path);
        dlclose(handle);
        return NULL;
    }
    return handle;
}

static void load(void)
{
    state.library = entry_library();
    state.handle = open_real(&state.library);
    if (state.handle)
        LOG("event=opened path=%s", state.library.path);
}

bool entry_points_load(void)
{
    pthread_once(&state.once, load);
    return state.handle != NULL;
}

/* A slot is empty until the first call: looking all names up at the start would be most of the
 * hook's cost there. */
void *entry_resolve(unsigned index)
{
    void **slot = &entry_targets[index], *known = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (known)
        return known;
    void *real = entry_points_load() ? dlsym(state.handle, entry_name(index)) : NULL;
    void *target = real ? real : entry_points_fallback();
    /* Fails where another thread was faster; it may have learned more already. */
    bool is_first = __atomic_compare_exchange_n(slot, &known, target, false, __ATOMIC_ACQ_REL,
                                                __ATOMIC_ACQUIRE);
    return is_first ? target : known;
}

void *entry_points_find(const char *name)
{
    return state.handle && find_row(name) >= 0 ? dlsym(state.handle, name) : NULL;
}

void *entry_points_fallback(void)
{
    return state.handle ? state.library.absent : state.library.unavailable;
}

/* Return the row of the function at this address among those of the requested name, with or
 * without a suffix: a driver may serve several functions by one address ("not supported"). A row
 * of ours comes first. -1: none. */
static int find_variant(const char *asked, const void *real)
{
    size_t length = strlen(asked);
    int row = find_row(asked), found = row >= 0 && entry_resolve((unsigned)row) == real ? row : -1;
    for (unsigned i = find_name(asked, length, '_'); is_name(i, asked, length, '_'); i++) {
        if (found >= 0 && entry_ours((unsigned)found))
            break;
        if (entry_resolve(i) == real)
            found = (int)i;
    }
    return found;
}

static void know_all(void)
{
    state.known = malloc(entry_count * sizeof *state.known);
    for (unsigned i = 0; i < entry_count && state.known; i++) {
        void *real = dlsym(state.handle, entry_name(i));
        if (real)
            state.known[state.known_count++] = real;
    }
    if (state.known)
        qsort(state.known, state.known_count, sizeof *state.known, compare_addresses);
}

/* By any name: after the requested name, this is rare enough to be prepared only then. */
static bool is_known(const void *real)
{
    pthread_once(&state.once_known, know_all);
    return state.known && bsearch(&real, state.known, state.known_count, sizeof *state.known,
                                  compare_addresses) != NULL;
}

/* A function that the driver hands out and does not export: its slot takes the address of the first
 * answer. A second address would be another ABI under the same name, for which there is no slot. */
static bool learn(const char *asked, void *real, void **ours)
{
    int row = find_row(asked);
    if (row < 0)
        return false;
    void **slot = &entry_targets[row], *expected = state.library.absent;
    entry_resolve((unsigned)row);
    if (!__atomic_compare_exchange_n(slot, &expected, real, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE) &&
        expected != real)
        return false;
    *ours = entry_ours((unsigned)row);
    return true;
}

bool entry_points_match(const char *asked, void *real, void **ours)
{
    *ours = NULL;
    if (!entry_points_load())
        return false;
    int found = find_variant(asked, real);
    if (found >= 0)
        *ours = entry_ours((unsigned)found);
    return found >= 0 || is_known(real) || learn(asked, real, ours);
}

void *aliquot_hook_substitute(const char *name, void *real)
{
    if (!settings()->is_on || !entry_points_load())
        return real;
    int row = find_row(name);
    if (row < 0 && state.library.unknown)
        return state.library.unknown(name, real);
    if (row < 0 || entry_resolve((unsigned)row) != real)
        return real;
    void *ours = entry_ours((unsigned)row);
    return ours ? ours : real;
}
