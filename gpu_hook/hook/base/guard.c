#include "base/guard.h"

#include "base/settings.h"

#include <stddef.h>
#include <unistd.h>

static struct {
    pid_t owner;
    /* 1 in that process. The kernel wipes it at a fork, however the child was made, so that no call
     * needs to ask for its pid. NULL: not known yet, or a kernel before 4.14. */
    uint32_t *is_owner;
} state;

static __thread bool is_inside __attribute__((tls_model("initial-exec")));

pid_t guard_owner(void)
{
    return __atomic_load_n(&state.owner, __ATOMIC_RELAXED);
}

void guard_set_owner(pid_t self)
{
    __atomic_store_n(&state.is_owner, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&state.owner, self, __ATOMIC_RELEASE);
}

/* In the child of a fork before the last step the process is asked for; after it the word is 0. */
void guard_set_wiped(uint32_t *wiped)
{
    if (wiped)
        *wiped = 1;
    __atomic_store_n(&state.is_owner, wiped, __ATOMIC_RELEASE);
}

bool guard_is_ours(void)
{
    const uint32_t *is_owner = __atomic_load_n(&state.is_owner, __ATOMIC_ACQUIRE);
    return is_owner ? *is_owner : __atomic_load_n(&state.owner, __ATOMIC_ACQUIRE) == getpid();
}

bool guard_enter(void)
{
    if (is_inside || !settings()->is_on || !guard_is_ours())
        return false;
    is_inside = true;
    return true;
}

void guard_leave(void)
{
    is_inside = false;
}
