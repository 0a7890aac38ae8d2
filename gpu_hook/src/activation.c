#include "activation.h"

#include "allocations.h"
#include "contexts.h"
#include "launch.h"
#include "log.h"
#include "page.h"
#include "quota.h"
#include "settings.h"
#include "vmm.h"

#include <pthread.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex; /* guards a change of `owner` */
    pid_t owner;           /* the process that the hook started in; 0: none yet */
    bool has_fork_handler;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static __thread bool is_inside __attribute__((tls_model("initial-exec")));

/* The inherited socket would keep the parent's registration alive after the parent's death. */
static void leave_in_child(void)
{
    session_leave();
    page_forget();
    pthread_mutex_init(&state.mutex, NULL);
}

static void forget_parent(void)
{
    LOG("event=restarted_after_fork parent=%d", (int)state.owner);
    page_forget();
    session_reset();
    quota_reset();
    allocations_reset();
    vmm_reset();
    contexts_reset();
    launch_reset();
}

void activation_begin(void)
{
    static const struct session_owner owner = {
        .describe = quota_describe,
        .registered = quota_registered,
        .granted = quota_granted,
        .recalled = quota_recalled,
        .tick = launch_tick,
    };
    if (!settings()->is_on)
        return;
    pthread_mutex_lock(&state.mutex);
    pid_t self = getpid();
    pid_t previous = __atomic_load_n(&state.owner, __ATOMIC_RELAXED);
    bool is_ready = true;
    if (previous != self) {
        if (previous)
            forget_parent();
        is_ready = page_prepare();
        if (!state.has_fork_handler)
            state.has_fork_handler = pthread_atfork(NULL, NULL, leave_in_child) == 0;
        if (is_ready)
            __atomic_store_n(&state.owner, self, __ATOMIC_RELEASE);
        else
            LOG("event=not_started reason=\"no memory for the pages\"");
    }
    pthread_mutex_unlock(&state.mutex);
    if (is_ready)
        session_start(&owner);
}

bool activation_enter(void)
{
    if (is_inside || !settings()->is_on)
        return false;
    pid_t owner = __atomic_load_n(&state.owner, __ATOMIC_ACQUIRE);
    if (!owner || owner != getpid())
        return false;
    is_inside = true;
    return true;
}

void activation_leave(void)
{
    is_inside = false;
}
