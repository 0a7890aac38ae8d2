#include "entry_points.h"

#include "log.h"
#include "version.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
    void *real;
    unsigned index;
};

static struct {
    pthread_once_t once;
    void *handle;
    struct entry_library library;
    struct known *known; /* by ascending address; NULL if there was no memory for them */
    unsigned known_count;
} state = {.once = PTHREAD_ONCE_INIT};

static int compare_addresses(const void *left, const void *right)
{
    const char *a = ((const struct known *)left)->real, *b = ((const struct known *)right)->real;
    return (a > b) - (a < b);
}

static int compare_name(const void *name, const void *row)
{
    return strcmp(name, *(const char *const *)row);
}

/* Under a spelling of its own. The loader gives who asks for a name again what it gave first, without asking the
 * audit redirector: neither may clients get the driver by its usual path because the shim opened it, nor the shim
 * itself because a client was redirected. */
static void *open_real(const struct entry_library *library)
{
    if (!library->path) {
        LOG("event=no_real_library variable=%s reason=not_set", library->variable);
        return NULL;
    }
    if (library->path[0] != '/') {
        LOG("event=no_real_library variable=%s path=%s reason=not_absolute", library->variable, library->path);
        return NULL;
    }
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "/.%s", library->path) >= (int)sizeof path)
        return NULL;
    void *handle = dlopen(path, RTLD_LOCAL | RTLD_NOW);
    if (!handle) {
        const char *reason = dlerror();
        LOG("event=no_real_library variable=%s reason=\"%s\"", library->variable, reason ? reason : "unknown");
        return NULL;
    }
    if (dlsym(handle, ALIQUOT_HOOK_MARKER)) {
        LOG("event=no_real_library variable=%s path=%s reason=is_the_shim", library->variable, library->path);
        dlclose(handle);
        return NULL;
    }
    return handle;
}

static void load(void)
{
    state.library = entry_library();
    const struct entry_library *library = &state.library;
    state.handle = open_real(library);
    state.known = state.handle ? malloc(entry_count * sizeof *state.known) : NULL;
    for (unsigned i = 0; i < entry_count; i++) {
        void *real = state.handle ? dlsym(state.handle, entry_names[i]) : NULL;
        if (real && state.known)
            state.known[state.known_count++] = (struct known){real, i};
        void *target = real ? real : state.handle ? library->absent : library->unavailable;
        __atomic_store_n(&entry_targets[i], target, __ATOMIC_RELEASE);
    }
    if (state.known)
        qsort(state.known, state.known_count, sizeof *state.known, compare_addresses);
}

bool entry_points_load(void)
{
    pthread_once(&state.once, load);
    return state.handle != NULL;
}

void *entry_resolve(unsigned index)
{
    entry_points_load();
    return __atomic_load_n(&entry_targets[index], __ATOMIC_ACQUIRE);
}

void *entry_points_find(const char *name)
{
    if (!state.handle)
        return NULL;
    const char *const *row = bsearch(name, entry_names, entry_count, sizeof *entry_names, compare_name);
    if (!row)
        return NULL;
    void *target = entry_targets[row - entry_names];
    return target == state.library.absent ? NULL : target;
}

void *entry_points_fallback(void)
{
    return state.handle ? state.library.absent : state.library.unavailable;
}

/* The first row of an address; known_count: there is none. */
static unsigned find_known(const void *real)
{
    unsigned low = 0, high = state.known_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if ((const char *)state.known[middle].real < (const char *)real)
            low = middle + 1;
        else
            high = middle;
    }
    return low < state.known_count && state.known[low].real == real ? low : state.known_count;
}

/* A driver may serve several functions by one address ("not supported"), so the name decides too. */
static bool is_variant_of(const char *name, const char *asked)
{
    size_t length = strlen(asked);
    return strncmp(name, asked, length) == 0 && (name[length] == '\0' || name[length] == '_');
}

/* A function that the driver hands out and does not export: its slot takes the address of the first answer. A
 * second address would be another ABI under the same name, for which there is no slot. */
static bool learn(const char *asked, void *real, void **ours)
{
    const char *const *row = bsearch(asked, entry_names, entry_count, sizeof *entry_names, compare_name);
    if (!row)
        return false;
    void **slot = &entry_targets[row - entry_names], *expected = state.library.absent;
    if (!__atomic_compare_exchange_n(slot, &expected, real, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
        expected != real)
        return false;
    *ours = entry_ours[row - entry_names];
    return true;
}

bool entry_points_match(const char *asked, void *real, void **ours)
{
    *ours = NULL;
    unsigned first = find_known(real);
    for (unsigned i = first; i < state.known_count && state.known[i].real == real && !*ours; i++)
        if (is_variant_of(entry_names[state.known[i].index], asked))
            *ours = entry_ours[state.known[i].index];
    return first < state.known_count || learn(asked, real, ours);
}

void *aliquot_hook_substitute(const char *name, void *real)
{
    if (!settings()->is_on || !entry_points_load())
        return real;
    const char *const *row = bsearch(name, entry_names, entry_count, sizeof *entry_names, compare_name);
    if (!row || __atomic_load_n(&entry_targets[row - entry_names], __ATOMIC_ACQUIRE) != real)
        return real;
    void *ours = entry_ours[row - entry_names];
    return ours ? ours : real;
}
