#include "observer.h"

#include "log.h"
#include "page.h"
#include "socket.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WELCOME_MILLISECONDS 1000

static struct { /* guarded by the mutex */
    pthread_mutex_t mutex;
    struct socket_owned connection;
    pid_t owner;    /* the process that connected; 0: none */
    time_t attempt_seconds;
    int last_failure;
    bool has_fork_handler;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .connection = {.descriptor = -1}};

/* The inherited socket would keep the parent's registration alive. */
static void leave_in_child(void)
{
    socket_close(&state.connection);
    state.owner = 0;
    state.attempt_seconds = 0;
    page_forget();
    pthread_mutex_init(&state.mutex, NULL);
}

/* With the mutex: drains what the agent may have said, and notices that it is gone. */
static void check_connection(void)
{
    struct socket_received received;
    int failure = socket_is_ours(&state.connection) ? 0 : EBADF;
    while (!failure) {
        failure = socket_receive(state.connection.descriptor, &received);
        for (int i = 0; !failure && i < 2; i++)
            if (received.descriptors[i] >= 0)
                close(received.descriptors[i]);
    }
    if (failure != EAGAIN)
        socket_close(&state.connection);
}

/* With the mutex. Returns 0 or an errno. */
static int connect_as(uint16_t version)
{
    int descriptor = page_prepare() ? socket_connect(settings()->kernel_dir) : -ENOMEM;
    if (descriptor < 0)
        return -descriptor;
    state.connection = socket_own(descriptor);
    union socket_message hello;
    socket_fill_hello(&hello.hello, ALIQUOT_ROLE_OBSERVER);
    int failure = socket_register(descriptor, version, &hello, WELCOME_MILLISECONDS);
    if (failure)
        socket_close(&state.connection);
    return failure;
}

/* With the mutex. */
static void connect_again(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (state.attempt_seconds == now.tv_sec + 1)
        return;
    state.attempt_seconds = now.tv_sec + 1;
    uint16_t version = ALIQUOT_PROTOCOL_VERSION;
    int failure = connect_as(version);
    while (failure == EPROTONOSUPPORT && version > ALIQUOT_OLDEST_VERSION)
        failure = connect_as(--version);
    if (!failure) {
        state.owner = getpid();
        LOG("event=observing");
    } else if (failure != state.last_failure) {
        LOG("event=not_observing reason=\"%s\"", strerror(failure));
    }
    state.last_failure = failure;
}

void observer_begin(void)
{
    if (!settings()->is_on)
        return;
    pthread_mutex_lock(&state.mutex);
    if (!state.has_fork_handler)
        state.has_fork_handler = pthread_atfork(NULL, NULL, leave_in_child) == 0;
    check_connection();
    if (state.connection.descriptor < 0)
        connect_again();
    pthread_mutex_unlock(&state.mutex);
}

bool observer_view(const uint8_t uuid[16], struct observer_view *view)
{
    observer_begin();
    pthread_mutex_lock(&state.mutex);
    /* After the agent's death its last words still hold: quotas do not change without it. */
    int index = state.owner ? page_device_index(uuid) : -1;
    if (index >= 0) {
        const struct aliquot_agent_device *words = &page_agent()->devices[index];
        view->quota_bytes = page_read(&words->quota_bytes);
        view->charged_bytes = page_read(&words->charged_bytes);
    }
    pthread_mutex_unlock(&state.mutex);
    return index >= 0;
}
