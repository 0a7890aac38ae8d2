/* aliquot-kernel-start [--] program [argument…]: a kernel's first program. It checks in the
 * kernel's own environment that interception holds, reports to the node agent, and becomes the
 * kernel: same pid, environment and descriptors. The kernel starts whatever the check finds. */
#include "interpose/self_check.h"
#include "base/settings.h"
#include "agent_link/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK_MILLISECONDS 10000
#define EXIT_NOT_STARTED 127

/* The kernel does not wait for the agent: this end refuses the answer to HELLO, so that no unread
 * data throws away what was sent. */
static void report(const struct self_check *check)
{
    int descriptor = socket_connect(settings()->kernel_dir);
    if (descriptor < 0)
        return;
    union socket_message message;
    shutdown(descriptor, SHUT_RD);
    socket_fill_hello(&message.hello, ALIQUOT_ROLE_CHECK);
    if (socket_send(descriptor, &message, ALIQUOT_HELLO, sizeof message.hello) == 0) {
        memset(&message, 0, sizeof message);
        message.self_check.passed = check->passed;
        memcpy(message.self_check.text, check->text, sizeof check->text);
        socket_send(descriptor, &message, ALIQUOT_SELF_CHECK, sizeof message.self_check);
    }
    close(descriptor);
}

/* The output of a kernel that starts all the same is what its user and the log of its server see. */
static void warn(const struct self_check *check)
{
    if ((check->passed & ALIQUOT_CHECK_ALL) != ALIQUOT_CHECK_ALL)
        fprintf(stderr,
                "aliquot: the memory limit of this kernel is not held: its GPU calls do not go "
                "through the hook (%s). Ask the administrator to run aliquot doctor\n",
                check->text);
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
        warn(&check);
    }
    execvp(*program, program);
    fprintf(stderr, "aliquot-kernel-start: cannot start %s: %s\n", *program, strerror(errno));
    return EXIT_NOT_STARTED;
}
