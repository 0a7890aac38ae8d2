/* aliquot-kernel-start [--] program [argument…]: a kernel's first program. It checks in the
 * kernel's own environment that interception holds, reports to the node agent, and becomes the
 * kernel: same pid, environment and descriptors. The kernel starts whatever the check finds. */
#include "interpose/self_check.h"
#include "base/settings.h"
#include "agent_link/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK_MILLISECONDS 10000
#define ANSWER_MILLISECONDS 2000
#define EXIT_NOT_STARTED 127

/* Read the answer to HELLO first, although its content does not matter: a socket that is closed
 * with unread data throws away its sent data. A stuck agent delays the kernel by no more than
 * that wait. */
static void report(const struct self_check *check)
{
    int descriptor = socket_connect(settings()->kernel_dir);
    if (descriptor < 0)
        return;
    union socket_message message;
    socket_fill_hello(&message.hello, ALIQUOT_ROLE_CHECK);
    if (socket_send(descriptor, &message, ALIQUOT_HELLO, sizeof message.hello) == 0) {
        struct socket_received answer;
        if (socket_wait(descriptor, ANSWER_MILLISECONDS) == 0 &&
            socket_receive(descriptor, &answer) == 0)
            for (int i = 0; i < 2; i++)
                if (answer.descriptors[i] >= 0)
                    close(answer.descriptors[i]);
        memset(&message, 0, sizeof message);
        message.self_check.passed = check->passed;
        memcpy(message.self_check.text, check->text, sizeof check->text);
        socket_send(descriptor, &message, ALIQUOT_SELF_CHECK, sizeof message.self_check);
    }
    close(descriptor);
}

int main(int count, char **arguments)
{
    char **program = arguments + 1;
    if (count > 1 && strcmp(*program, "--") == 0)
        program++;
    if (!*program) {
        fprintf(
            stderr,
            "aliquot-kernel-start: no program was named; usage: aliquot-kernel-start [--] program "
            "[argument...]\n");
        return EXIT_NOT_STARTED;
    }
    if (settings()->kernel_dir) {
        struct self_check check;
        self_check_run_apart(&check, CHECK_MILLISECONDS);
        report(&check);
    }
    execvp(*program, program);
    fprintf(stderr, "aliquot-kernel-start: cannot start %s: %s\n", *program, strerror(errno));
    return EXIT_NOT_STARTED;
}
