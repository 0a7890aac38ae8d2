#include "agent_link/socket.h"

#include "base/log.h"
#include "agent_link/page.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A program that closed its standard descriptors and then opens a file for them must not find our
 * socket there. */
int socket_move_away(int descriptor)
{
    if (descriptor < 0 || descriptor > 2)
        return descriptor;
    int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    int failure = errno;
    close(descriptor);
    errno = failure;
    return moved;
}

/* By statx, since fstat is a symbol of newer glibc only. */
struct socket_owned socket_own_sized(int descriptor, uint64_t *bytes)
{
    struct statx found;
    *bytes = 0;
    if (descriptor < 0 ||
        statx(descriptor, "", AT_EMPTY_PATH, STATX_INO | STATX_SIZE, &found) != 0)
        return SOCKET_NONE;
    *bytes = found.stx_size;
    return (struct socket_owned){
        descriptor, (uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor, found.stx_ino};
}

struct socket_owned socket_own(int descriptor)
{
    uint64_t bytes;
    return socket_own_sized(descriptor, &bytes);
}

bool socket_is_ours(const struct socket_owned *owned)
{
    struct socket_owned found = socket_own(owned->descriptor);
    return found.descriptor >= 0 && found.device == owned->device && found.inode == owned->inode;
}

void socket_close(struct socket_owned *owned)
{
    if (socket_is_ours(owned))
        close(owned->descriptor);
    *owned = SOCKET_NONE;
}

int socket_connect(const char *kernel_dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", kernel_dir,
                          ALIQUOT_SOCKET_NAME);
    if (length < 0 || (size_t)length >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    int descriptor =
        socket_move_away(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (descriptor < 0)
        return -errno;
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        int failure = errno;
        close(descriptor);
        return -failure;
    }
    return descriptor;
}

int socket_send(int descriptor, union socket_message *message, enum aliquot_message_type type,
                uint32_t bytes)
{
    message->header.magic = ALIQUOT_MESSAGE_MAGIC;
    message->header.version = ALIQUOT_PROTOCOL_VERSION;
    message->header.type = (uint16_t)type;
    message->header.bytes = bytes;
    ssize_t sent;
    do
        sent = send(descriptor, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

static void take_descriptors(struct msghdr *header, struct socket_received *received)
{
    unsigned taken = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
            if (taken < 2)
                received->descriptors[taken++] = socket_move_away(descriptor);
            else
                close(descriptor);
        }
    }
}

int socket_receive(int descriptor, struct socket_received *received)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec vector = {&received->message, sizeof received->message};
    struct msghdr header = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    received->descriptors[0] = received->descriptors[1] = -1;
    ssize_t got;
    do
        got = recvmsg(descriptor, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? EAGAIN : EPIPE;
    if (got == 0)
        return EPIPE;
    take_descriptors(&header, received);
    const struct aliquot_header *head = &received->message.header;
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || (size_t)got < sizeof *head ||
        head->magic != ALIQUOT_MESSAGE_MAGIC || head->bytes != (uint32_t)got) {
        for (int i = 0; i < 2; i++)
            if (received->descriptors[i] >= 0)
                close(received->descriptors[i]);
        return EPROTO;
    }
    return 0;
}

static uint64_t read_start_time(void)
{
    char text[1024];
    int descriptor = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    ssize_t got = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    /* Field 2 is the name in parentheses, which may hold blanks and parentheses; field 3 follows
     * the last one. */
    char *cursor = strrchr(text, ')');
    for (int field = 2; cursor && field < 22; field++)
        cursor = strchr(cursor + 1, ' ');
    return cursor ? strtoull(cursor + 1, NULL, 10) : 0;
}

void socket_fill_hello(struct aliquot_hello *hello, enum aliquot_role role)
{
    memset(hello, 0, sizeof *hello);
    hello->role = role;
    hello->pid = (int32_t)getpid();
    hello->start_time_ticks = read_start_time();
    strncpy(hello->name, program_invocation_short_name, sizeof hello->name - 1);
}

static int64_t now_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int socket_wait(int descriptor, int timeout_milliseconds)
{
    int64_t deadline = now_milliseconds() + timeout_milliseconds;
    for (;;) {
        int64_t left = deadline - now_milliseconds();
        struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
        int ready = poll(&wanted, 1, left > 0 ? (int)left : 0);
        if (ready > 0)
            return 0;
        if (ready == 0)
            return ETIMEDOUT;
        if (errno != EINTR)
            return errno;
    }
}

static int accept_answer(struct socket_received *received)
{
    const union socket_message *message = &received->message;
    if (message->header.type == ALIQUOT_REFUSE && message->header.bytes == sizeof message->refuse) {
        LOG("event=refused reason=%u text=\"%.*s\"", message->refuse.reason,
            (int)ALIQUOT_TEXT_BYTES - 1, message->refuse.text);
        return ECONNREFUSED;
    }
    if (message->header.type != ALIQUOT_WELCOME ||
        message->header.bytes != sizeof message->welcome || received->descriptors[1] < 0)
        return EPROTO;
    return page_install(received->descriptors[0], received->descriptors[1]);
}

int socket_register(int descriptor, union socket_message *hello, int timeout_milliseconds)
{
    int failure = socket_send(descriptor, hello, ALIQUOT_HELLO, sizeof hello->hello);
    if (!failure)
        failure = socket_wait(descriptor, timeout_milliseconds);
    if (failure)
        return failure;
    struct socket_received received;
    failure = socket_receive(descriptor, &received);
    if (failure)
        return failure;
    failure = accept_answer(&received);
    for (int i = 0; i < 2; i++)
        if (received.descriptors[i] >= 0)
            close(received.descriptors[i]);
    return failure;
}
