#include "agent_link/session.h"

#include "base/cancellation.h"
#include "agent_link/credit_waiter.h"
#include "base/guard.h"
#include "base/guest_thread.h"
#include "agent_link/interrupts.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "base/times.h"
#include "agent_link/wake_pipe.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define TICK_MILLISECONDS 50
#define LOOK_MILLISECONDS 1000 /* how long the program may have closed our descriptors unnoticed */
#define FIRST_BACKOFF_MILLISECONDS 100
#define LAST_BACKOFF_MILLISECONDS 1000
#define WELCOME_MILLISECONDS 2000
#define START_MILLISECONDS 1000

const uint8_t SESSION_HOST_MEMORY[16];

/* Guarded by the mutex, save `owner` (set before the thread starts). */
static struct {
    pthread_mutex_t mutex;
    const struct session_owner *owner;
    struct waiter *waiters;
    struct socket_owned connection; /* none unless registered */
    /* a connection that is not registered yet; kept for session_leave */
    struct socket_owned candidate;
    struct wake_pipe wake;
    uint32_t sequence;
    uint32_t connections; /* number of registrations so far; read without the mutex too */
    bool is_running;
    bool has_attempted; /* read without the mutex too */
    bool has_waited; /* a process that never registered has had its one long wait */
    /* the agent was there, and did not answer a reconnection; read without the mutex too */
    uint32_t has_lost;
    int last_failure;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .connection = {.descriptor = -1},
           .candidate = {.descriptor = -1},
           .wake = WAKE_PIPE_NONE};

static void note_failure(int failure)
{
    pthread_mutex_lock(&state.mutex);
    bool is_news = failure != state.last_failure;
    state.last_failure = failure;
    __atomic_store_n(&state.has_attempted, true, __ATOMIC_RELEASE);
    bool is_lost =
        state.connections > 0 && !__atomic_exchange_n(&state.has_lost, 1, __ATOMIC_SEQ_CST);
    interrupts_ring();
    pthread_mutex_unlock(&state.mutex);
    if (is_lost)
        state.owner->lost();
    if (is_news)
        LOG("event=not_registered socket=%s/%s reason=\"%s\"", settings()->kernel_dir,
            ALIQUOT_SOCKET_NAME, strerror(failure));
}

/* Returns 0 or an errno. */
static int register_once(void)
{
    int descriptor = socket_connect(settings()->kernel_dir);
    if (descriptor < 0)
        return -descriptor;
    struct socket_owned connection = socket_own(descriptor);
    pthread_mutex_lock(&state.mutex);
    state.candidate = connection;
    pthread_mutex_unlock(&state.mutex);
    union socket_message hello;
    socket_fill_hello(&hello.hello, ALIQUOT_ROLE_PROCESS);
    hello.hello.device_count = state.owner->describe(hello.hello.devices);
    hello.hello.residency = state.owner->place();
    int failure = socket_register(descriptor, &hello, WELCOME_MILLISECONDS);
    pthread_mutex_lock(&state.mutex);
    state.candidate = SOCKET_NONE;
    if (!failure) {
        __atomic_store_n(&state.has_lost, 0, __ATOMIC_RELEASE);
        state.connection = connection;
        __atomic_fetch_add(&state.connections, 1, __ATOMIC_RELEASE);
        state.last_failure = 0;
    }
    pthread_mutex_unlock(&state.mutex);
    if (failure)
        socket_close(&connection);
    return failure;
}

static bool register_process(void)
{
    int failure = register_once();
    if (failure) {
        note_failure(failure);
        return false;
    }
    state.owner->registered();
    pthread_mutex_lock(&state.mutex);
    __atomic_store_n(&state.has_attempted, true, __ATOMIC_RELEASE);
    interrupts_ring();
    pthread_mutex_unlock(&state.mutex);
    LOG("event=registered");
    return true;
}

/* A grant, or the message that the request has to wait for room. */
static void answer_waiter(const struct aliquot_credit *answer)
{
    pthread_mutex_lock(&state.mutex);
    for (struct waiter *waiter = state.waiters; waiter; waiter = waiter->next)
        if (waiter->sequence == answer->header.sequence && !waiter->is_answered)
            waiter_answered(waiter, answer->header.type == ALIQUOT_CREDIT_GRANT, answer->bytes);
    interrupts_ring();
    pthread_mutex_unlock(&state.mutex);
}

static void handle_credit(const struct aliquot_credit *credit)
{
    /* Credit first, then the waiter: it looks at the credit, not at the number. */
    bool is_loan = credit->header.type == ALIQUOT_CREDIT_GRANT &&
                   credit->deadline_milliseconds != ALIQUOT_REQUEST_CONTEXT;
    if (is_loan && credit->bytes)
        state.owner->granted(credit->device, credit->bytes);
    if (credit->header.type == ALIQUOT_CREDIT_RECALL)
        state.owner->recalled(credit);
    else
        answer_waiter(credit);
}

static void handle_message(struct socket_received *received)
{
    const union socket_message *message = &received->message;
    const struct aliquot_header *header = &message->header;
    bool is_credit =
        header->bytes == sizeof message->credit && message->credit.device <= ALIQUOT_HOST_MEMORY;
    bool is_swap = header->bytes == sizeof message->swap;
    if (is_credit &&
        (header->type == ALIQUOT_CREDIT_GRANT || header->type == ALIQUOT_CREDIT_RECALL ||
         header->type == ALIQUOT_CREDIT_WAIT)) {
        handle_credit(&message->credit);
    } else if (is_swap && (header->type == ALIQUOT_SWAP_OUT || header->type == ALIQUOT_SWAP_IN)) {
        state.owner->swap(&message->swap);
    } else if (header->type == ALIQUOT_SEGMENT && header->bytes == sizeof message->segment &&
               received->descriptors[0] >= 0) {
        state.owner->segment(&message->segment, received->descriptors[0]);
        received->descriptors[0] = -1;
    } else if (header->type == ALIQUOT_ACTIVITY_PAGE && header->bytes == sizeof message->activity) {
        state.owner->activity(&message->activity, received->descriptors[0]);
    } else {
        LOG("event=unexpected_message type=%u bytes=%u", header->type, header->bytes);
    }
}

static struct socket_owned find_wake(void)
{
    pthread_mutex_lock(&state.mutex);
    struct socket_owned wake = wake_pipe_keep(&state.wake);
    pthread_mutex_unlock(&state.mutex);
    return wake;
}

/* Returns 0 also when nothing is there. */
static int receive_one(const struct socket_owned *connection)
{
    struct socket_received received;
    int failure = socket_receive(connection->descriptor, &received);
    if (failure)
        return failure == EAGAIN ? 0 : failure;
    handle_message(&received);
    for (int i = 0; i < 2; i++)
        if (received.descriptors[i] >= 0)
            close(received.descriptors[i]);
    return 0;
}

/* Returns when the connection is of no more use. */
static int serve(const struct socket_owned *connection)
{
    bool is_active = true;
    for (;;) {
        struct socket_owned wake = find_wake();
        struct pollfd wanted[2] = {{.fd = connection->descriptor, .events = POLLIN},
                                   {.fd = wake.descriptor, .events = POLLIN}};
        int ready = poll(wanted, 2, is_active ? TICK_MILLISECONDS : LOOK_MILLISECONDS);
        if (ready < 0 && errno != EINTR)
            return errno;
        if (!socket_is_ours(connection))
            return EBADF;
        bool is_woken = ready > 0 && (wanted[1].revents & POLLIN) && wake_pipe_drain(&wake);
        int failure = ready > 0 && wanted[0].revents ? receive_one(connection) : 0;
        if (failure)
            return failure;
        if (is_woken || ready == 0)
            is_active = state.owner->tick();
    }
}

static void pause_before_retry(int milliseconds)
{
    struct timespec length = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
    while (nanosleep(&length, &length) != 0 && errno == EINTR)
        ;
}

static void *run(void *unused)
{
    int backoff = FIRST_BACKOFF_MILLISECONDS;
    prctl(PR_SET_NAME, "aliquot-hook");
    guest_thread_guard_stack();
    guard_set_wiped(page_wiped_word());
    while (!guest_threads_are_over()) {
        if (!register_process()) {
            pause_before_retry(backoff);
            backoff =
                backoff * 2 < LAST_BACKOFF_MILLISECONDS ? backoff * 2 : LAST_BACKOFF_MILLISECONDS;
            continue;
        }
        backoff = FIRST_BACKOFF_MILLISECONDS;
        struct socket_owned connection = state.connection;
        int failure = serve(&connection);
        if (guest_threads_are_over())
            break; /* registered to the last: the process still has its memory */
        pthread_mutex_lock(&state.mutex);
        state.connection = SOCKET_NONE;
        interrupts_ring();
        pthread_mutex_unlock(&state.mutex);
        socket_close(&connection);
        LOG("event=agent_lost reason=\"%s\"", strerror(failure));
        pause_before_retry(backoff);
    }
    return unused;
}

void session_start(const struct session_owner *owner)
{
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    if (!state.is_running) {
        state.owner = owner;
        int failure = guest_thread_start_early(run, NULL);
        state.is_running = failure == 0;
        if (failure)
            LOG("event=no_thread reason=\"%s\"", strerror(failure));
    }
    pthread_mutex_unlock(&state.mutex);
}

/* With the mutex held, which it lets go meanwhile. True: an interrupt ended the wait; never without
 * `wait`. */
static bool await_news(const struct timespec *deadline, struct interruptible *wait)
{
    struct timespec left = times_until(deadline);
    uint32_t bell = interrupts_bell();
    pthread_mutex_unlock(&state.mutex);
    bool is_given_up = left.tv_sec >= 0 && interrupts_sleep(wait, bell, times_nanoseconds(&left));
    pthread_mutex_lock(&state.mutex);
    return is_given_up;
}

void session_await(void)
{
    if (__atomic_load_n(&state.has_attempted, __ATOMIC_ACQUIRE))
        return;
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    struct timespec deadline = times_after(START_MILLISECONDS);
    while (state.is_running && !state.has_attempted && times_until(&deadline).tv_sec >= 0)
        await_news(&deadline, NULL);
    pthread_mutex_unlock(&state.mutex);
}

/* With the mutex held: sends the request on the present connection. Returns its number, 0 if there
 * is none. */
static uint32_t send_request(struct waiter *waiter, const uint8_t uuid[16], uint64_t bytes,
                             enum aliquot_request purpose)
{
    int device = uuid == SESSION_HOST_MEMORY ? (int)ALIQUOT_HOST_MEMORY : page_device_index(uuid);
    if (!socket_is_ours(&state.connection) || device < 0)
        return 0;
    union socket_message message = {
        .credit = {.device = (uint32_t)device, .deadline_milliseconds = purpose, .bytes = bytes}};
    message.header.sequence = waiter->sequence = ++state.sequence;
    int failure = socket_send(state.connection.descriptor, &message, ALIQUOT_CREDIT_REQUEST,
                              sizeof message.credit);
    return failure ? 0 : state.connections;
}

/* With the mutex held: the agent need not look for room any more. What it grants meanwhile is
 * credit to spare. */
static void withdraw_request(const struct waiter *waiter, const uint8_t uuid[16])
{
    int device = uuid == SESSION_HOST_MEMORY ? (int)ALIQUOT_HOST_MEMORY : page_device_index(uuid);
    if (!waiter->requested_on || waiter->requested_on != state.connections || device < 0 ||
        !socket_is_ours(&state.connection))
        return;
    union socket_message message = {
        .credit = {.device = (uint32_t)device, .deadline_milliseconds = 1}};
    message.header.sequence = waiter->sequence;
    socket_send(state.connection.descriptor, &message, ALIQUOT_CREDIT_RETURN,
                sizeof message.credit);
}

int session_request(const uint8_t uuid[16], uint64_t bytes, enum aliquot_request purpose,
                    uint64_t *granted)
{
    struct waiter waiter = {0};
    struct interruptible wait;
    bool is_late = false, is_given_up = false;
    DEFER_CANCELLATION;
    interrupts_begin(&wait);
    pthread_mutex_lock(&state.mutex);
    bool was_registered = state.connections > 0;
    waiter.deadline = times_after(was_registered     ? AWAY_MILLISECONDS
                                  : state.has_waited ? 0
                                                     : FIRST_REQUEST_MILLISECONDS);
    waiter.next = state.waiters;
    state.waiters = &waiter;
    while (state.is_running && !waiter.is_answered && !is_late && !is_given_up &&
           !guest_threads_are_over()) {
        /* A new connection knows nothing of a request that was sent on the old one. */
        bool is_connected = state.connection.descriptor >= 0;
        if (waiter.requested_on && (!is_connected || waiter.requested_on != state.connections))
            waiter_lost_agent(&waiter);
        if (is_connected && !waiter.requested_on)
            waiter_requested(&waiter, send_request(&waiter, uuid, bytes, purpose));
        is_given_up = await_news(&waiter.deadline, &wait);
        is_late = times_until(&waiter.deadline).tv_sec < 0;
    }
    if (is_given_up && !waiter.is_answered)
        withdraw_request(&waiter, uuid);
    for (struct waiter **link = &state.waiters; *link; link = &(*link)->next)
        if (*link == &waiter) {
            *link = waiter.next;
            break;
        }
    if (state.connections == 0)
        state.has_waited = true;
    int failure = waiter.is_answered   ? 0
                  : is_given_up        ? EINTR
                  : state.last_failure ? state.last_failure
                                       : ETIMEDOUT;
    *granted = waiter.granted;
    pthread_mutex_unlock(&state.mutex);
    interrupts_end();
    return failure;
}

bool session_send(union socket_message *message, enum aliquot_message_type type, uint32_t bytes)
{
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    bool is_sent = socket_is_ours(&state.connection) &&
                   socket_send(state.connection.descriptor, message, type, bytes) == 0;
    pthread_mutex_unlock(&state.mutex);
    return is_sent;
}

bool session_send_credit(uint32_t device, uint64_t bytes, uint32_t sequence)
{
    union socket_message message = {.credit = {.device = device, .bytes = bytes}};
    message.header.sequence = sequence;
    return session_send(&message, ALIQUOT_CREDIT_RETURN, sizeof message.credit);
}

uint32_t session_connections(void)
{
    return __atomic_load_n(&state.connections, __ATOMIC_ACQUIRE);
}

bool session_is_registered(void)
{
    return __atomic_load_n(&state.connections, __ATOMIC_ACQUIRE) > 0;
}

bool session_is_connected(void)
{
    pthread_mutex_lock(&state.mutex);
    bool is_connected = state.connection.descriptor >= 0;
    pthread_mutex_unlock(&state.mutex);
    return is_connected;
}

bool session_has_lost_agent(void)
{
    return __atomic_load_n(&state.has_lost, __ATOMIC_SEQ_CST) != 0;
}

void session_wake(void)
{
    pthread_mutex_lock(&state.mutex);
    wake_pipe_ring(&state.wake);
    pthread_mutex_unlock(&state.mutex);
}

void session_leave(void)
{
    socket_close(&state.connection);
    socket_close(&state.candidate);
    wake_pipe_close(&state.wake);
}

void session_reset(void)
{
    session_leave();
    pthread_mutex_init(&state.mutex, NULL);
    state.waiters = NULL;
    state.connections = state.has_lost = 0;
    state.is_running = state.has_attempted = state.has_waited = false;
    state.last_failure = 0;
}
