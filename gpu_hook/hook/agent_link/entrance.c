#include "agent_link/entrance.h"

#include "agent_link/interrupts.h"
#include "agent_link/socket.h"
#include "base/cancellation.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* the agent makes it, and looks for locks on it; it has a byte while the kernel moves */
#define FILE_NAME "entrance"
#define LOOK_NANOSECONDS 20000000
#define ASK_NANOSECONDS (1ull * TIMES_SECOND)       /* from one look for the agent to the next */
#define PATIENCE_NANOSECONDS (30ull * TIMES_SECOND) /* with an agent that is away */

static struct { /* guarded by the mutex */
    pthread_mutex_t mutex;
    pthread_once_t once;
    struct socket_owned file; /* none: no lock is held */
    unsigned callers;         /* threads inside the real cuInit */
    bool has_begun;           /* the real cuInit has succeeded */
    bool is_registered;
    char path[PATH_MAX]; /* here, as a thread's stack may be small */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .once = PTHREAD_ONCE_INIT,
           .file = {.descriptor = -1}};

/* A child has none of its parent's locks. */
static void leave_in_child(void)
{
    socket_close(&state.file);
    state.callers = 0;
    state.has_begun = state.is_registered = false;
    pthread_mutex_init(&state.mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, leave_in_child);
}

/* With the mutex. NULL: too long. */
static const char *find_path(void)
{
    int length =
        snprintf(state.path, sizeof state.path, "%s/" FILE_NAME, settings()->kernel_dir);
    return length > 0 && length < PATH_MAX ? state.path : NULL;
}

/* With the mutex. True: the kernel moves. A lock of fcntl is the process's own: no child inherits
 * it, and it ends with the process. An agent without the file moves no kernel. */
static bool take_lock(void)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    uint64_t bytes;
    const char *path = state.file.descriptor >= 0 ? NULL : find_path();
    if (!path)
        return false;
    int descriptor = socket_move_away(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (descriptor < 0)
        return false;
    if (fcntl(descriptor, F_SETLK, &lock) != 0)
        LOG("event=no_lock file=%s reason=\"%s\"", path, strerror(errno));
    state.file = socket_own_sized(descriptor, &bytes); /* after the lock */
    return bytes > 0;
}

/* With the mutex. Closing the file gives up the lock. */
static void give_up_lock(void)
{
    if (state.is_registered || (!state.callers && !state.has_begun))
        socket_close(&state.file);
}

/* The agent writes its byte before it looks for locks, and this process takes its lock before it
 * reads the size: of the two, one sees the other. */
static bool try_to_enter(void)
{
    pthread_once(&state.once, watch_forks); /* before the lock: a fork may come at any time */
    pthread_mutex_lock(&state.mutex);
    bool may_enter = state.is_registered || state.callers || state.has_begun;
    if (!may_enter)
        may_enter = !take_lock();
    state.callers += may_enter;
    give_up_lock();
    pthread_mutex_unlock(&state.mutex);
    return may_enter;
}

static bool is_agent_there(void)
{
    int descriptor = socket_connect(settings()->kernel_dir);
    if (descriptor >= 0)
        close(descriptor);
    return descriptor >= 0 || descriptor == -EAGAIN;
}

/* False: an interrupt ended the wait, or the agent is away for too long. */
static bool await_entrance(void)
{
    struct interruptible wait;
    uint64_t now = times_now_nanoseconds(), asked_at = now, seen_at = now;
    interrupts_begin_unknown(&wait);
    while (!try_to_enter()) {
        if (interrupts_sleep(&wait, interrupts_bell(), LOOK_NANOSECONDS)) {
            LOG("event=wait_ended reason=interrupt what=\"the end of the kernel's move\"");
            return false;
        }
        now = times_now_nanoseconds();
        if (now - asked_at < ASK_NANOSECONDS)
            continue;
        asked_at = now;
        seen_at = is_agent_there() ? now : seen_at;
        if (now - seen_at >= PATIENCE_NANOSECONDS) {
            LOG("event=left_in_move");
            return false;
        }
    }
    return true;
}

bool entrance_enter(void)
{
    DEFER_CANCELLATION;
    if (!settings()->is_on || try_to_enter())
        return true;
    LOG("event=waits_for_move");
    if (!await_entrance())
        return false;
    LOG("event=waited_for_move");
    return true;
}

void entrance_leave(bool has_begun)
{
    DEFER_CANCELLATION;
    if (!settings()->is_on)
        return;
    pthread_mutex_lock(&state.mutex);
    state.callers -= state.callers > 0;
    state.has_begun = state.has_begun || has_begun;
    give_up_lock();
    pthread_mutex_unlock(&state.mutex);
}

void entrance_registered(void)
{
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    state.is_registered = true;
    give_up_lock();
    pthread_mutex_unlock(&state.mutex);
}
