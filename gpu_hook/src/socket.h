/* Messages to and from the node agent, one SEQPACKET connection. Owns no state: callers hold the descriptor.
 * Nothing here blocks, raises SIGPIPE, or leaves a descriptor in 0-2 or open across exec. */
#ifndef ALIQUOT_SOCKET_H
#define ALIQUOT_SOCKET_H

#include "aliquot_protocol.h"

union socket_message {
    struct aliquot_header header;
    struct aliquot_hello hello;
    struct aliquot_credit credit;
    struct aliquot_welcome welcome;
    struct aliquot_refuse refuse;
    struct aliquot_self_check_result self_check;
};

struct socket_received {
    union socket_message message;
    int descriptors[2]; /* -1 where none came; the caller closes them */
};

/* Returns a descriptor, or a negative errno. */
int socket_connect(const char *kernel_dir);

/* Completes the header and sends. Returns 0 or an errno. */
int socket_send(int descriptor, union socket_message *message, enum aliquot_message_type type, uint32_t bytes);

/* Returns 0; EAGAIN when nothing is there; EPIPE when the agent closed; EPROTO when it sent what we cannot read. */
int socket_receive(int descriptor, struct socket_received *received);

/* Fills a HELLO without devices. */
void socket_fill_hello(struct aliquot_hello *hello, enum aliquot_role role);

/* Waits for readability. Returns 0, ETIMEDOUT or an errno. */
int socket_wait(int descriptor, int timeout_milliseconds);

/* Sends HELLO and receives the pages. Returns 0 or an errno; a refusal is ECONNREFUSED and is logged. */
int socket_register(int descriptor, union socket_message *hello, int timeout_milliseconds);

/* Returns the descriptor moved to 3 or above, close-on-exec. */
int socket_move_away(int descriptor);

#endif
