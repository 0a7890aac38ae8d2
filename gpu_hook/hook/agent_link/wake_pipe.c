#include "agent_link/wake_pipe.h"

#include <fcntl.h>
#include <unistd.h>

struct socket_owned wake_pipe_keep(struct wake_pipe *pipe)
{
    int ends[2];
    if (socket_is_ours(&pipe->ends[0]) && socket_is_ours(&pipe->ends[1]))
        return pipe->ends[0];
    wake_pipe_close(pipe);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0)
        for (int i = 0; i < 2; i++)
            pipe->ends[i] = socket_own(socket_move_away(ends[i]));
    return pipe->ends[0];
}

void wake_pipe_ring(const struct wake_pipe *pipe)
{
    if (socket_is_ours(&pipe->ends[1]) && write(pipe->ends[1].descriptor, "", 1) < 0) {
        /* The pipe is full: the thread is awake already. */
    }
}

bool wake_pipe_drain(const struct socket_owned *end)
{
    char drained[64];
    return socket_is_ours(end) && read(end->descriptor, drained, sizeof drained) > 0;
}

void wake_pipe_close(struct wake_pipe *pipe)
{
    for (int i = 0; i < 2; i++)
        socket_close(&pipe->ends[i]);
}
