/* Two processes of one test. The second is forked before CUDA is used, which no forked child of a user can. They talk over
 * a socket that also carries descriptors; what fails in the second fails the test. */
#ifndef ALIQUOT_CONFORMANCE_PROCESSES_H
#define ALIQUOT_CONFORMANCE_PROCESSES_H

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct peer {
    int socket;
    pid_t process;
};

/* Runs `other` in a second process. */
static inline struct peer peer_start(void (*other)(int socket))
{
    int ends[2];
    EXPECT_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_t process = fork();
    EXPECT(process >= 0);
    if (process == 0) {
        close(ends[0]);
        other(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    return (struct peer){ends[0], process};
}

/* Waits for its end, which must be a good one. */
static inline void peer_end(struct peer peer)
{
    int status = 0;
    close(peer.socket);
    EXPECT_EQUAL(waitpid(peer.process, &status, 0), peer.process);
    EXPECT_EQUAL(status, 0);
}

static inline void peer_kill(struct peer peer)
{
    EXPECT_EQUAL(kill(peer.process, SIGKILL), 0);
    EXPECT_EQUAL(waitpid(peer.process, NULL, 0), peer.process);
    close(peer.socket);
}

/* `descriptor` -1: none. */
static inline void peer_send(int socket, const void *data, size_t bytes, int descriptor)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr *control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
    }
    EXPECT_EQUAL(sendmsg(socket, &message, MSG_NOSIGNAL), bytes);
}

/* The descriptor that came with it, or -1. */
static inline int peer_receive(int socket, void *data, size_t bytes)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    int descriptor = -1;
    struct iovec part = {data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    EXPECT_EQUAL(recvmsg(socket, &message, 0), bytes);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control && control->cmsg_type == SCM_RIGHTS)
        memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
    return descriptor;
}

static inline void peer_say(int socket)
{
    peer_send(socket, "", 1, -1);
}

static inline void peer_hear(int socket)
{
    char byte;
    peer_receive(socket, &byte, 1);
}

#endif
