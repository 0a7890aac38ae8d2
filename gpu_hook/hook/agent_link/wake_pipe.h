/* A pipe that ends a thread's poll. It is a pipe because an eventfd has no identity of its own, and
 * a program may close descriptors that it did not open. Guarded by its owner. */
#ifndef ALIQUOT_WAKE_PIPE_H
#define ALIQUOT_WAKE_PIPE_H

#include "agent_link/socket.h"

struct wake_pipe {
    struct socket_owned ends[2];
};
#define WAKE_PIPE_NONE {{{.descriptor = -1}, {.descriptor = -1}}}

/* Make the pipe, if it is missing, and return its end to poll. */
struct socket_owned wake_pipe_keep(struct wake_pipe *pipe);

/* Make the pipe readable. Never waits. */
void wake_pipe_ring(const struct wake_pipe *pipe);

/* Empty the pipe. True: it was readable. */
bool wake_pipe_drain(const struct socket_owned *end);

/* Safe in a fork handler. */
void wake_pipe_close(struct wake_pipe *pipe);

#endif
