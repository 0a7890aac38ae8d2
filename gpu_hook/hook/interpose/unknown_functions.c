#include "interpose/unknown_functions.h"

#include "interpose/entry_points.h"
#include "base/log.h"
#include "agent_link/page.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define SPARE_BYTES 16 /* from one spare forwarder to the next */

extern const char entry_spares[] __attribute__((visibility("hidden"))); /* code; generated */

struct spare {
    void *real; /* written last, with release; NULL: not handed out yet */
    char name[ALIQUOT_FUNCTION_BYTES];
};

static struct { /* without a lock: names are asked for before cuInit, on any thread */
    struct spare spares[UNKNOWN_FUNCTIONS_MOST];
    uint32_t taken;
    char unguarded[ALIQUOT_FUNCTION_BYTES]; /* the first function for which no forwarder was left */
    uint32_t has_unguarded;
    const char *called; /* one of the names above; set once */
} state;

static void copy_name(char target[ALIQUOT_FUNCTION_BYTES], const char *name)
{
    size_t length = strnlen(name, ALIQUOT_FUNCTION_BYTES - 1);
    memcpy(target, name, length);
    target[length] = '\0';
}

/* The length comes last: an agent that reads it reads the name as well. */
static void publish(const char *name)
{
    struct aliquot_hook_page *page = page_hook();
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        __atomic_store_n(&page->unknown_function[i], name[i], __ATOMIC_RELAXED);
    __atomic_store_n(&page->unknown_function_length, (uint32_t)length, __ATOMIC_RELEASE);
}

static void note(const char *name)
{
    const char *none = NULL;
    if (!__atomic_compare_exchange_n(&state.called, &none, name, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_RELAXED))
        return;
    LOG("event=unknown_function name=%s what=\"this process is not swapped from now on\"", name);
    publish(name);
}

static void *forwarder(unsigned spare)
{
    return (void *)(entry_spares + (size_t)spare * SPARE_BYTES);
}

static void pass_unguarded(const char *name)
{
    if (__atomic_exchange_n(&state.has_unguarded, 1, __ATOMIC_ACQ_REL))
        return;
    copy_name(state.unguarded, name);
    note(state.unguarded);
}

/* Two threads that ask for the same function at once get two forwarders, which does no harm. */
void *unknown_functions_gate(const char *name, void *real)
{
    for (unsigned i = 0; i < UNKNOWN_FUNCTIONS_MOST; i++)
        if (__atomic_load_n(&state.spares[i].real, __ATOMIC_ACQUIRE) == real)
            return forwarder(i);
    if (__atomic_load_n(&state.taken, __ATOMIC_RELAXED) < UNKNOWN_FUNCTIONS_MOST) {
        uint32_t spare = __atomic_fetch_add(&state.taken, 1, __ATOMIC_RELAXED);
        if (spare < UNKNOWN_FUNCTIONS_MOST) {
            copy_name(state.spares[spare].name, name);
            __atomic_store_n(&state.spares[spare].real, real, __ATOMIC_RELEASE);
            return forwarder(spare);
        }
    }
    pass_unguarded(name);
    return real;
}

/* dlsym finds data symbols of the driver, too (cudbg*, for debuggers), and functions of other
 * libraries. */
static bool is_function_of_the_driver(void *real)
{
    Dl_info found, driver;
    void *symbol = NULL, *known = entry_points_find("cuInit");
    if (!known || !dladdr(known, &driver) || !dladdr1(real, &found, &symbol, RTLD_DL_SYMENT) ||
        !symbol)
        return false;
    return found.dli_fbase == driver.dli_fbase &&
           ELF64_ST_TYPE(((ElfW(Sym) *)symbol)->st_info) == STT_FUNC;
}

void *unknown_functions_gate_export(const char *name, void *real)
{
    return is_function_of_the_driver(real) ? unknown_functions_gate(name, real) : real;
}

void *unknown_functions_target(unsigned spare)
{
    return __atomic_load_n(&state.spares[spare].real, __ATOMIC_ACQUIRE);
}

void unknown_functions_note_call(unsigned spare)
{
    if (!__atomic_load_n(&state.called, __ATOMIC_RELAXED))
        note(state.spares[spare].name);
}

const char *unknown_functions_called(void)
{
    return __atomic_load_n(&state.called, __ATOMIC_SEQ_CST);
}

void unknown_functions_registered(void)
{
    const char *called = unknown_functions_called();
    if (called)
        publish(called);
}

/* The program still holds the forwarders that it received. */
void unknown_functions_reset(void)
{
    state.called = NULL;
}
