/* Messages to and from the node agent, over one SEQPACKET connection. This module owns no state:
 * callers hold the descriptor. Nothing here blocks, raises SIGPIPE, or leaves a descriptor in 0-2
 * or open across exec. */
#ifndef ALIQUOT_SOCKET_H
#define ALIQUOT_SOCKET_H

#include "aliquot_protocol.h"

#include <stdbool.h>

union socket_message {
    struct aliquot_header header;
    struct aliquot_hello hello;
    struct aliquot_credit credit;
    struct aliquot_welcome welcome;
    struct aliquot_refuse refuse;
    struct aliquot_self_check_result self_check;
    struct aliquot_segment segment;
    struct aliquot_swap swap;
    struct aliquot_wake wake;
    struct aliquot_moved moved;
    struct aliquot_activity_page_notice activity;
};

struct socket_received {
    union socket_message message;
    int descriptors[2]; /* -1 where none came; the caller closes them */
};

/* Connect. Returns a descriptor, or a negative errno. */
int socket_connect(const char *kernel_dir);

/* Complete the header and send. Returns 0 or an errno. */
int socket_send(int descriptor, union socket_message *message, enum aliquot_message_type type,
                uint32_t bytes);

/* Receive a message. Returns 0; EAGAIN when nothing is there; EPIPE when the agent closed; EPROTO
 * when the message is malformed. */
int socket_receive(int descriptor, struct socket_received *received);

/* Fill a HELLO without devices. */
void socket_fill_hello(struct aliquot_hello *hello, enum aliquot_role role);

/* Wait for readability. Returns 0, ETIMEDOUT or an errno. */
int socket_wait(int descriptor, int timeout_milliseconds);

/* Send HELLO and receive the pages. Returns 0 or an errno; a refusal is ECONNREFUSED and is
 * logged. */
int socket_register(int descriptor, union socket_message *hello, int timeout_milliseconds);

/* Return the descriptor moved to 3 or above, close-on-exec. */
int socket_move_away(int descriptor);

/* A descriptor, and the file that it was opened for. A program may close every descriptor that it
 * did not open; the next file that it opens then has the hook's number, and is not the hook's to
 * read, write or close. */
struct socket_owned {
    int descriptor; /* -1: none */
    uint64_t device, inode;
};
#define SOCKET_NONE ((struct socket_owned){.descriptor = -1})

struct socket_owned socket_own(int descriptor);
/* The same, with the file's size at that moment; 0 where the answer is SOCKET_NONE. */
struct socket_owned socket_own_sized(int descriptor, uint64_t *bytes);
bool socket_is_ours(const struct socket_owned *owned);

/* Close the descriptor if it still is the hook's; then it is SOCKET_NONE. Safe in a fork
 * handler. */
void socket_close(struct socket_owned *owned);

#endif
