/* This process's registration with the node agent: one connection, and one thread that alone reads
 * it, reconnects when the agent was restarted, and answers recalls. It knows nothing of
 * allocations: it calls its owner for them. */
#ifndef ALIQUOT_SESSION_H
#define ALIQUOT_SESSION_H

#include "agent_link/socket.h"

/* Stands in place of a device's UUID for page-locked host memory, which the agent lends where the
 * page's host_quota_bytes is not 0. */
extern const uint8_t SESSION_HOST_MEMORY[16];

/* Callbacks of the session. It calls all on its thread, without holding a lock of its own. */
struct session_owner {
    /* Fill HELLO's devices; returns their number. Host memory comes last. */
    uint32_t (*describe)(struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES]);
    uint32_t (*place)(void); /* for HELLO: enum aliquot_residency */
    void (*registered)(void); /* the pages are in place */
    void (*lost)(void); /* session_has_lost_agent is true from now on */
    void (*granted)(uint32_t device, uint64_t bytes);
    void (*recalled)(const struct aliquot_credit *recall); /* must answer by session_send_credit */
    /* takes the descriptor */
    void (*segment)(const struct aliquot_segment *segment, int descriptor);
    /* must answer by session_send; not at once, and not here */
    void (*swap)(const struct aliquot_swap *order);
    /* closes nothing */
    void (*activity)(const struct aliquot_activity_page_notice *notice, int descriptor);
    bool (*tick)(void); /* every 50 ms while it returns true; then again after session_wake */
};

/* Start the thread, which registers while the program goes on: the program's first launch does not
 * wait. Idempotent. */
void session_start(const struct session_owner *owner);

/* Wait, at most a second, for the first attempt to register. Called before what depends on the
 * agent's page. */
void session_await(void);

/* Request credit of a device, or of host memory (SESSION_HOST_MEMORY), and wait for the answer.
 * Returns 0 with what was granted (0: over quota, or no room), or an errno. An agent that is connected has 30 s, which begin again whenever it reports that it
 * is still looking for room; one that left has 5 s to come back, or 30 s where it had reported so;
 * one that was never there has 2 s, and only once. EINTR: an interrupt ended the wait
 * (interrupts.h), and the request is withdrawn. */
int session_request(const uint8_t uuid[16], uint64_t bytes, enum aliquot_request purpose,
                    uint64_t *granted);

/* Send a message whose sequence is set. False: not connected, or the agent is slow. Never waits. */
bool session_send(union socket_message *message, enum aliquot_message_type type, uint32_t bytes);

/* Send a CREDIT_RETURN. False: not connected, or the agent is slow; the caller still owes it. Never
 * waits. */
bool session_send_credit(uint32_t device, uint64_t bytes, uint32_t sequence);

bool session_is_registered(void);

/* Return whether a connection stands now; an agent that is away may come back. */
bool session_is_connected(void);

/* Return how many times this process has registered. The agent does not answer requests of an
 * earlier connection. */
uint32_t session_connections(void);

/* Return whether the agent is lost: it was there, has left, and did not answer a reconnection. */
bool session_has_lost_agent(void);

/* Make the thread tick again. */
void session_wake(void);

/* Called in the child of a fork, in the fork handler: close what keeps the parent's registration
 * alive. */
void session_leave(void);

/* Called in the child of a fork, at its own cuInit: the session is as if never started. */
void session_reset(void);

#endif
