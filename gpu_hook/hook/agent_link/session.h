/* This process's registration with the node agent: one connection, one thread that alone reads it, reconnects when
 * the agent was restarted, and answers recalls. Knows nothing of allocations: the owner is asked and told by calls. */
#ifndef ALIQUOT_SESSION_H
#define ALIQUOT_SESSION_H

#include "agent_link/socket.h"

/* Instead of a device's UUID: page-locked host memory, which the agent lends where the page's host_quota_bytes is not 0. */
extern const uint8_t SESSION_HOST_MEMORY[16];

/* All are called on the session's thread, without any lock of the session held. */
struct session_owner {
    /* For HELLO; returns the count. Host memory comes last. */
    uint32_t (*describe)(struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES]);
    uint32_t (*place)(void); /* for HELLO: enum aliquot_residency */
    void (*registered)(void); /* the pages are in place */
    void (*lost)(void); /* session_has_lost_agent is true from now on */
    void (*granted)(uint32_t device, uint64_t bytes);
    void (*recalled)(const struct aliquot_credit *recall); /* must answer by session_send_credit */
    void (*segment)(const struct aliquot_segment *segment, int descriptor); /* the descriptor is its own from now on */
    void (*swap)(const struct aliquot_swap *order); /* must answer by session_send; not at once, and not here */
    void (*activity)(const struct aliquot_board_notice *notice, int descriptor); /* closes nothing */
    bool (*tick)(void); /* every 50 ms while it returns true; then again after session_wake */
};

/* Starts the thread, which registers while the program goes on: its first launch waits for nobody. Idempotent. */
void session_start(const struct session_owner *owner);

/* Waits, at most a second, for the first attempt to register: what depends on the agent's page asks after it. */
void session_await(void);

/* Asks for credit of a device, or of host memory (SESSION_HOST_MEMORY), and waits for the answer. Returns 0 with what
 * was granted (0: over quota, or no room now for what may not wait), or an errno: an agent that is there said nothing for
 * 30 s, which begin again whenever it says that it is still looking for room; one that left was not back within 5 s, or
 * 30 s where it had said so; within 2 s, and only once, when the agent was never there; EINTR: an interrupt ended the wait
 * (interrupts.h), and the request is withdrawn. */
int session_request_credit(const uint8_t uuid[16], uint64_t bytes, bool may_wait, uint64_t *granted);

/* Sends a message whose sequence is set. False: not connected, or the agent is slow, or of a version that does not know
 * the type. Never waits. */
bool session_send(union socket_message *message, enum aliquot_message_type type, uint32_t bytes);

/* Sends a CREDIT_RETURN. False: not connected, or the agent is slow; the caller still owes it. Never waits. */
bool session_send_credit(uint32_t device, uint64_t bytes, uint32_t sequence);

bool session_is_registered(void);

/* Now; an agent that is away may come back. */
bool session_is_connected(void);

/* How many times this process has registered: what was asked on an earlier connection is answered to nobody. */
uint32_t session_connections(void);

/* The agent was there, is not any more, and did not answer when it was looked for. */
bool session_has_lost_agent(void);

/* Makes the thread tick again. */
void session_wake(void);

/* In the child of a fork, in the fork handler: closes what keeps the parent's registration alive. */
void session_leave(void);

/* In the child of a fork, at its own cuInit: as if never started. */
void session_reset(void);

#endif
